/* What a run shows of itself on the way: validation loss and samples. Neither changes what training computes. */
#include "train/trainer.h"

#include "model/generate.h"

#include <stddef.h>
#include <stdio.h>

void step_state_send(Trainer *t, const StepState *s)
{
    copy_in(&t->model.ctx, tensor_1d(t->model.state.data, DTYPE_I32, offsetof(StepState, adam_t) / 4), s);
}

bool trainer_evaluate(Trainer *t, double *loss, Error *e)
{
    Model *m = &t->model;
    int32_t *tokens = t->evaluation_batch, *targets = tokens + m->run.batch_size * m->run.block_size;
    int64_t counted, total = 0, batches = evaluation_batches(&t->evaluation);
    m->ctx.phase = PHASE_EVALUATION;
    t->step.loss_sum = 0;
    step_state_send(t, &t->step);
    for (int64_t i = 0; i < batches; i++) {
        if (!evaluation_batch(&t->evaluation, (uint64_t)t->state.evaluations, i, tokens, targets, &counted, e))
            return false;
        copy_in(&m->ctx, m->tokens, tokens);
        copy_in(&m->ctx, m->targets, targets);
        model_evaluate(m);
        total += counted;
    }
    copy_out(&m->ctx, &t->step, m->state);
    m->ctx.device->synchronize(&m->ctx);
    t->state.evaluations++;
    *loss = total ? t->step.loss_sum / (double)total : 0;
    return !e->set;
}

static bool token_print(void *user, int64_t sequence, int32_t token)
{
    const Tokenizer *tokenizer = user;
    size_t n = 0;
    const uint8_t *piece = tokenizer_piece(tokenizer, token, &n);
    (void)sequence;
    return piece && fwrite(piece, 1, n, stdout) == n;
}

bool trainer_sample(Trainer *t, Error *e)
{
    const TrainOptions *o = &t->options;
    GenerateOptions how = {.temperature = 0.8, .top_p = 1, .seed = (uint64_t)o->seed, .length = o->sample_tokens};
    printf("---- sample after step %lld\n%s", (long long)t->state.iter, o->prompt);
    bool ok = model_generate(&t->model, t->prompt, t->prompt_length, &how, token_print, t->tokenizer, e);
    printf("\n----\n");
    fflush(stdout);
    return ok;
}
