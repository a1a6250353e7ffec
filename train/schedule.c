#include "train/schedule.h"

#include <math.h>
#include <string.h>

bool schedule_kind_parse(const char *text, ScheduleKind *kind)
{
    static const char *const names[] = {"cosine", "linear", "wsd", "constant"};
    for (int i = 0; i < 4; i++) {
        if (strcmp(text, names[i]) == 0) {
            *kind = (ScheduleKind)i;
            return true;
        }
    }
    return false;
}

double schedule_rate(const Schedule *s, int64_t step)
{
    if (step < s->warmup)
        return s->lr * (double)(step + 1) / (double)s->warmup;
    if (s->kind == SCHEDULE_CONSTANT)
        return s->lr;
    if (step >= s->end)
        return s->min_lr;
    double progress = (double)(step - s->warmup) / (double)(s->end - s->warmup);
    if (s->kind == SCHEDULE_COSINE)
        return s->min_lr + 0.5 * (1 + cos(M_PI * progress)) * (s->lr - s->min_lr);
    if (s->kind == SCHEDULE_LINEAR)
        return s->lr + (s->min_lr - s->lr) * progress;
    double decay_from = fmax((double)s->warmup, (double)s->end * (1 - s->decay));
    double fraction = ((double)step - decay_from) / ((double)s->end - decay_from);
    return fraction <= 0 ? s->lr : s->lr + (s->min_lr - s->lr) * fraction;
}
