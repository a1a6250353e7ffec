/* The comparison of precisions that `tally bench amp --json` has measured:
 *
 *   {"model", "precisions": [{"precision", "ms_median", "ms_min", "ms_max", "tokens_per_s", "classes": {"gemm", "attention",
 * "memory", "optimizer"} in ms, "memory": {CATEGORY: bytes}, "loss"}, ...], "amdahl": {...}}
 *
 * Anything in it may be missing: what is there is shown. */
#include "tools/report.h"

#include <math.h>

static const struct {
    const char *of, *field, *title, *format; /* the field, of the row itself or of an object in it */
    double unit;
} column[] = {{NULL, "ms_median", "ms a step", "%.2f", 1},
              {NULL, "ms_min", "least", "%.2f", 1},
              {NULL, "ms_max", "most", "%.2f", 1},
              {"classes", "gemm", "GEMM", "%.2f", 1},
              {"classes", "attention", "attention", "%.2f", 1},
              {"classes", "memory", "memory-bound", "%.2f", 1},
              {"classes", "optimizer", "optimizer", "%.2f", 1},
              {NULL, "tokens_per_s", "tokens/s", "%.0f", 1},
              {NULL, "memory", "MiB", "%.2f", 0x1p20},
              {NULL, "loss", "loss", "%.5f", 1}};
enum { COLUMNS = sizeof column / sizeof *column };

/* A number, or the sum of an object's numbers; NaN when there is neither. */
static double cell(const json_t *row, int c)
{
    const json_t *value = json_object_get(column[c].of ? json_object_get(row, column[c].of) : row, column[c].field);
    const char *name;
    json_t *part;
    double sum = 0;
    json_object_foreach((json_t *)value, name, part)
    {
        sum += json_number_value(part);
    }
    return json_is_number(value) ? json_number_value(value) : json_is_object(value) ? sum : (double)NAN;
}

void report_amp(FILE *out, Report *r)
{
    const json_t *list = json_object_get(r->amp, "precisions");
    double base = cell(json_array_get(list, 0), 0);
    size_t i;
    json_t *row;
    fputs("<tr><th>precision<th>speed-up", out);
    for (int c = 0; c < COLUMNS; c++)
        fprintf(out, "<th>%s", column[c].title);
    json_array_foreach(list, i, row)
    {
        const char *name = json_string_value(json_object_get(row, "precision"));
        fputs("\n<tr><th scope=\"row\">", out);
        html_text(out, name ? name : "?");
        fprintf(out, "<td>%.3f &times;", base / cell(row, 0));
        for (int c = 0; c < COLUMNS; c++) {
            double value = cell(row, c);
            fprintf(out, "<td data-field=\"%s%s\" data-value=\"%.17g\">", column[c].of ? "classes." : "", column[c].field, value);
            fprintf(out, isnan(value) ? "&ndash;" : column[c].format, value / column[c].unit);
        }
    }
}
