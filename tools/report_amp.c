/* The comparison of precisions, as `tally bench amp --json` (bench_amp.c) prints it. Anything in it may be missing: what is there
 * is shown. */
#include "tools/report.h"

#include <math.h>
#include <string.h>

/* The objects that have a precision's numbers: itself, its "classes", its entry in the list "amdahl". */
enum { ITSELF, CLASSES, AMDAHL };

static const struct {
    int of;
    const char *field, *title, *format;
    double unit;
} column[] = {{ITSELF, "ms_median", "ms a step", "%.2f", 1},  {ITSELF, "ms_min", "least", "%.2f", 1},
              {ITSELF, "ms_max", "most", "%.2f", 1},          {CLASSES, "gemm", "GEMM", "%.2f", 1},
              {CLASSES, "attention", "attention", "%.2f", 1}, {CLASSES, "memory", "memory-bound", "%.2f", 1},
              {CLASSES, "optimizer", "optimizer", "%.2f", 1}, {ITSELF, "tokens_per_s", "tokens/s", "%.0f", 1},
              {AMDAHL, "measured", "speed-up", "%.3f", 1},    {AMDAHL, "predicted", "by Amdahl", "%.3f", 1},
              {ITSELF, "total_bytes", "MiB", "%.2f", 0x1p20}, {ITSELF, "loss", "loss", "%.5f", 1}};
enum { COLUMNS = sizeof column / sizeof *column };

static const char *name_of(const json_t *row)
{
    const char *name = json_string_value(json_object_get(row, "precision"));
    return name ? name : "?";
}

/* The entry of "amdahl" for a precision, or NULL. */
static const json_t *amdahl_find(const json_t *list, const char *name)
{
    size_t i = 0;
    while (i < json_array_size(list) && strcmp(name_of(json_array_get(list, i)), name) != 0)
        i++;
    return json_array_get(list, i);
}

void report_amp(FILE *out, Report *r)
{
    const json_t *list = json_object_get(r->amp, "precisions");
    fputs("<tr><th>precision", out);
    for (int c = 0; c < COLUMNS; c++)
        fprintf(out, "<th>%s", column[c].title);
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *row = json_array_get(list, i), *from[] = {row, json_object_get(row, "classes"),
                                                                amdahl_find(json_object_get(r->amp, "amdahl"), name_of(row))};
        fputs("\n<tr><th scope=\"row\">", out);
        html_text(out, name_of(row));
        for (int c = 0; c < COLUMNS; c++) {
            const json_t *cell = json_object_get(from[column[c].of], column[c].field);
            fprintf(out, "<td data-field=\"%s%s\" data-value=\"%.17g\">", column[c].of == CLASSES ? "classes." : "",
                    column[c].field, json_is_number(cell) ? json_number_value(cell) : (double)NAN);
            fprintf(out, json_is_number(cell) ? column[c].format : "&ndash;", json_number_value(cell) / column[c].unit);
        }
    }
}
