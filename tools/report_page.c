/* See report_page.h. */
#include "tools/report_page.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- Numbers and text ------------------------------------------------------------------------------------------------ */

char *count_text(NumberText text, double n)
{
    char plain[32];
    int length = snprintf(plain, sizeof plain, "%.0f", fmin(fmax(n, 0), 1e18)), used = 0;
    for (int i = 0; i < length; i++) {
        text[used++] = plain[i];
        if (i + 1 < length && (length - i - 1) % 3 == 0)
            text[used++] = ',';
    }
    text[used] = 0;
    return text;
}

char *mib_text(NumberText text, double bytes)
{
    double hundredths = round(100 * bytes / 0x1p20);
    sprintf(strchr(count_text(text, floor(hundredths / 100)), 0), ".%02.0f MiB", fmod(hundredths, 100));
    return text;
}

char *exact_text(NumberText text, double bytes)
{
    NumberText count;
    sprintf(strchr(mib_text(text, bytes), 0), " (%s bytes)", count_text(count, bytes));
    return text;
}

void html_text(FILE *out, const char *text)
{
    for (; *text; text++)
        fprintf(out, strchr("&<>\"'", *text) ? "&#%d;" : "%c", *text);
}

void html_word(FILE *out, const char *word)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./=,:+@%";
    bool quoted = !*word || word[strspn(word, plain)];
    fputs(quoted ? "&#39;" : "", out);
    for (char one[2] = ""; *word; word++) {
        one[0] = *word;
        html_text(out, *word == '\'' ? "'\\''" : one);
    }
    fputs(quoted ? "&#39;" : "", out);
}

void html_data(FILE *out, const json_t *value, Error *e)
{
    char *text = json_dumps(value, JSON_COMPACT);
    if (!text) {
        error_set(e, "the data of the page cannot be written as JSON: out of memory");
        return;
    }
    fputs("<script type=\"application/json\" id=\"data\">", out);
    for (const char *c = text; *c; c++)
        fprintf(out, *c == '<' ? "\\u003c" : "%c", *c); /* a `<` is only ever within a string */
    fputs("</script>\n", out);
    free(text);
}

/* ---- Shapes ---------------------------------------------------------------------------------------------------------- */

void shape_begin(FILE *out, const Shape *s)
{
    double height = s->layer < 0 || s->n_layer < 2 ? 0 : (double)s->layer / (double)(s->n_layer - 1);
    NumberText text;
    fprintf(
        out,
        "<g class=\"t\" tabindex=\"0\" role=\"img\" style=\"--c:var(--%s);--t:%.0f%%\" data-category=\"%s\" data-layer=\"%d\" "
        "data-value=\"%.17g\"%s data-name=\"",
        s->category, 60 * height + 10 * s->odd, s->category, s->layer, s->bytes, s->more);
    html_text(out, s->name);
    fputs("\"><title>", out);
    html_text(out, s->name);
    fprintf(out, s->layer < 0 ? " \xc2\xb7 " : " \xc2\xb7 layer %d, ", s->layer);
    fprintf(out, "%s \xc2\xb7 %s%s</title><path d=\"", s->category, exact_text(text, s->bytes), s->detail);
}

void shape_end(FILE *out)
{
    fputs("\"/></g>\n", out);
}

/* ---- Charts ---------------------------------------------------------------------------------------------------------- */

double plot_x(const Plot *p, double x)
{
    return 1000 * (x - p->x0) / (p->x1 - p->x0);
}

double plot_y(const Plot *p, double y)
{
    return 1000 * (p->y1 - y) / (p->y1 - p->y0);
}

/* Ticks from low to high, at most `most`, at multiples of a round number: 1, 2 or 5 times a power of ten, or a power of two. */
typedef struct Ticks {
    double first, step;
    int count;
} Ticks;

static Ticks ticks_make(double low, double high, int most, bool bytes)
{
    double range = high - low, step = bytes ? 1 : pow(10, floor(log10(range / most)));
    for (int k = 0; range / step > most; k++)
        step *= bytes || k % 3 != 1 ? 2 : 2.5;
    double first = ceil(low / step - 1e-9) * step;
    return (Ticks){first, step, (int)floor((high - first) / step + 1e-9) + 1};
}

/* Writes each as <span style="EDGE:12.34%">512 MiB</span>. */
static void ticks_write(const Plot *p, Ticks t, bool along_x)
{
    for (int k = 0; k < t.count; k++) {
        double at = t.first + k * t.step, shown = p->bytes ? at / 0x1p20 : at;
        NumberText text;
        fprintf(p->out, along_x ? "<span style=\"left:%.2f%%\">" : "<span style=\"top:%.2f%%\">",
                (along_x ? plot_x(p, at) : plot_y(p, at)) / 10);
        if (shown >= 1000)
            fputs(count_text(text, shown), p->out);
        else
            fprintf(p->out, "%.4g", shown);
        fputs(p->bytes ? " MiB</span>" : "</span>", p->out);
    }
}

void plot_begin(const Plot *p, const char *height, const char *attributes)
{
    Ticks t = ticks_make(p->y0, p->y1, p->ticks, p->bytes);
    fprintf(p->out, "<span class=\"plot\" style=\"--h:%s\"><span class=\"y\">", height);
    ticks_write(p, t, false);
    fprintf(p->out,
            "</span><span class=\"area\"><svg viewBox=\"0 0 1000 1000\" preserveAspectRatio=\"none\" %s>\n<path "
            "class=\"grid\" d=\"",
            attributes);
    for (int k = 0; k < t.count; k++)
        fprintf(p->out, "M0 %.1fH1000", plot_y(p, t.first + k * t.step));
    fputs("\"/>\n", p->out);
}

void plot_label(const Plot *p, const char *class, double x, double y, const char *text)
{
    fprintf(p->out, "<span class=\"label %s\" style=\"left:%.2f%%;top:%.2f%%\">%s</span>\n", class, plot_x(p, x) / 10,
            plot_y(p, y) / 10, text);
}

void plot_x_ticks(const Plot *p)
{
    fputs("</span><span class=\"x\">", p->out);
    ticks_write(p, ticks_make(p->x0, p->x1, 4, p->bytes), true);
}

void plot_end(const Plot *p)
{
    fputs("</span></span>\n", p->out);
}

/* One edge, between i = first and last in the direction of `step`; a level part is one command. */
static void edge_write(const Plot *p, const double *y, int64_t from, int64_t to, int step)
{
    for (int64_t i = from; i != to + step; i += step)
        if (i == to || y[i + step] != y[i]) {
            fprintf(p->out, "H%.2f", plot_x(p, (double)(step > 0 ? i + 1 : i)));
            if (i != to)
                fprintf(p->out, "V%.2f", plot_y(p, y[i + step]));
        }
}

void plot_band(const Plot *p, const double *lo, const double *hi, int64_t first, int64_t last)
{
    fprintf(p->out, "M%.2f %.2f", plot_x(p, (double)first), plot_y(p, hi[first]));
    edge_write(p, hi, first, last, 1);
    fprintf(p->out, "V%.2f", plot_y(p, lo[last]));
    edge_write(p, lo, last, first, -1);
    fputc('Z', p->out);
}
