/* The report of a run, one HTML file: what its parts share. report.c gathers and writes the whole; the others draw a section
 * each.
 */
#ifndef TALLY_TOOLS_REPORT_H
#define TALLY_TOOLS_REPORT_H

#include "model/fit.h"
#include "tools/report_page.h"

typedef enum Metric { METRIC_LOSS, METRIC_VAL_LOSS, METRIC_LR, METRIC_GRAD_NORM, METRIC_TOKENS_PER_S, METRIC_COUNT } Metric;

typedef struct LogRow {
    double step, value[METRIC_COUNT]; /* NaN: the line has none */
} LogRow;

/* log.jsonl: the configuration in its first line, and the steps. */
typedef struct RunLog {
    json_t *configuration;
    LogRow *row;
    long count;
    size_t capacity;
    long skipped;    /* steps whose gradient was not finite              */
    long unreadable; /* lines that are no step, such as one that a crash has cut */
} RunLog;

typedef struct Report {
    const char *dir;              /* of the run; NULL for a plan, whose words on the command line are: */
    char **words;                 /* ends with NULL                                                    */
    Model level[RECOMPUTE_COUNT]; /* the run, planned with each level of recomputation                 */
    Recompute own;                /* the run's own level                                               */
    int64_t accumulation;
    Room room; /* that the plan is compared with; bytes 0: none                                       */
    json_t *settings;
    RunLog log;   /* of a run; without steps for a plan                                               */
    json_t *amp;  /* what `tally bench amp --json` has printed, or NULL                               */
    json_t *data; /* the data of the charts, written into the page at its end                         */
    Error *error; /* the first failure of a part                                                      */
} Report;

/* Reads dir/log.jsonl. False with file and line in the message when there is none or its first line is no configuration. log_free
 * in any case. */
bool log_read(RunLog *log, const char *dir, Error *e);
void log_free(RunLog *log);

/* Parts of the page, as HTML. */
void report_title(FILE *out, Report *r); /* the run's folder, or the plan's model                                              */
void report_summary(FILE *out, Report *r);   /* model and step in a sentence                                                    */
void report_facts(FILE *out, Report *r);     /* the main numbers                                                                */
void report_again(FILE *out, Report *r);     /* the command that does it again                                                  */
void report_levels(FILE *out, Report *r);    /* the levels side by side: miniatures of the mountains, which choose one of them  */
void report_mountains(FILE *out, Report *r); /* live memory over one training step, at each level                               */
void report_legend(FILE *out, Report *r);    /* the colours of categories and phases                                            */
void report_split(FILE *out, Report *r);     /* bytes by category and layer                                                     */
void report_curves(FILE *out, Report *r);    /* loss, learning rate, gradient norm, speed; adds "log" to r->data; needs a step  */
void report_amp(FILE *out, Report *r);       /* rows of the table of precisions                                                 */

#endif
