/* What the parts of the report are written with: escaped text, numbers for people, shapes, bars and the frame of a chart.
 *
 * A chart is an SVG of 1000 x 1000 units, stretched to the place there is (lines keep their width); its labels are HTML around
 * it, so that on a telephone they are as large as text. What a shape stands for is in its attributes: data-category, data-layer,
 * data-value (bytes). report.js shows the <title> of the shape that is pointed at or reached by Tab. */
#ifndef TALLY_TOOLS_REPORT_PAGE_H
#define TALLY_TOOLS_REPORT_PAGE_H

#include "base/error.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

typedef char NumberText[64];

/* Into text, which is returned: "37,748,736"; "36.00 MiB"; "36.00 MiB (37,748,736 bytes)". */
char *count_text(NumberText text, double n);
char *mib_text(NumberText text, double bytes);
char *exact_text(NumberText text, double bytes);

/* Writes text with & < > " ' as entities: fit for content and for quoted attributes. */
void html_text(FILE *out, const char *text);

/* The same for a word of a command line, quoted for the shell where it has to be. */
void html_word(FILE *out, const char *word);

/* Writes <script type="application/json" id="data">; no `<` is left in it that could end the element. */
void html_data(FILE *out, const json_t *value, Error *e);

/* A shape that stands for bytes. `more`: further attributes of ours, or ""; `detail`: what else its title says, or "". */
typedef struct Shape {
    const char *name, *category, *more, *detail;
    int layer; /* -1: in none */
    int64_t n_layer;
    bool odd; /* to be set off a little from its neighbours */
    double bytes;
} Shape;

/* Opens it up to its path's "d", which shape_end closes: in the colour of the category, tinted by how far up its layer is. */
void shape_begin(FILE *out, const Shape *s);
void shape_end(FILE *out);

typedef struct Plot {
    FILE *out;
    double x0, x1, y0, y1; /* what the edges stand for, x1 > x0 and y1 > y0       */
    bool bytes;            /* the ticks are MiB, at powers of two; else decimal    */
    int ticks;             /* along y, at most                                    */
} Plot;

double plot_x(const Plot *p, double x); /* units */
double plot_y(const Plot *p, double y); /* units, downwards */

/* Opens the frame (height in CSS) and the SVG with these attributes, and draws y ticks and grid. After "</svg>" plot_label puts a
 * text of ours over it; plot_x_ticks begins what is below with ticks, or "</span><span>" without; plot_end closes the frame. */
void plot_begin(const Plot *p, const char *height, const char *attributes);
void plot_label(const Plot *p, const char *class, double x, double y, const char *text);
void plot_x_ticks(const Plot *p);
void plot_end(const Plot *p);

/* The outline between two step functions of the op number: lo[i] and hi[i] hold from x = i to i + 1, i = first .. last. */
void plot_band(const Plot *p, const double *lo, const double *hi, int64_t first, int64_t last);

#endif
