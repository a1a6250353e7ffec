/* The card that is played and how: everything that the environment sets (README.md lists it), and random numbers. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/softgpu/runtime/runtime.h"

Settings settings;
static uint64_t random_state;

#define GIB (1ull << 30)
#define KIB (1 << 10)

/* What the data sheets and the CUDA programming guide's table of capabilities say. The first is the default. */
static const Card cards[] = {
    /* key, name, memory, SMs, capability, L2, shared memory of an SM and of a block, clocks in kHz, bus */
    {"a100", "Software A100", 40 * GIB, 108, 80, 40960 * KIB, 164 * KIB, 163 * KIB, 1410000, 1215000, 5120},
    {"h100", "Software H100", 80 * GIB, 132, 90, 51200 * KIB, 228 * KIB, 227 * KIB, 1980000, 2619000, 5120},
    {"t4", "Software T4", 16 * GIB, 40, 75, 4096 * KIB, 64 * KIB, 64 * KIB, 1590000, 5001000, 256},
    {"rtx3090", "Software RTX 3090", 24 * GIB, 82, 86, 6144 * KIB, 100 * KIB, 99 * KIB, 1695000, 9751000, 384},
    {"rtx4060", "Software RTX 4060", 8 * GIB, 24, 89, 24576 * KIB, 100 * KIB, 99 * KIB, 2460000, 8501000, 128},
    {"rtx4090", "Software RTX 4090", 24 * GIB, 128, 89, 73728 * KIB, 100 * KIB, 99 * KIB, 2520000, 10501000, 384},
    {"rtx5090", "Software RTX 5090", 32 * GIB, 170, 120, 98304 * KIB, 100 * KIB, 99 * KIB, 2407000, 14001000, 512},
    {.key = "none"}, /* a machine with a driver and no card */
};

/* The number in a variable, or `otherwise`. A value that is no number stops the process: a test must not run with another
 * setting than it believes. */
static uint64_t number(const char *variable, uint64_t otherwise)
{
    const char *text = getenv(variable);
    if (!text || !*text)
        return otherwise;
    char *end;
    uint64_t value = strtoull(text, &end, 0);
    if (*end) {
        say("%s=%s is not a number", variable, text);
        exit(2);
    }
    return value;
}

static Card card_read(void)
{
    Card card = cards[0];
    const char *key = getenv("SOFTGPU_CARD"), *name = getenv("SOFTGPU_NAME");
    if (key && *key) {
        size_t i = 0, n = sizeof cards / sizeof *cards;
        while (i < n && strcmp(cards[i].key, key) != 0)
            i++;
        if (i == n) {
            say("SOFTGPU_CARD=%s is none of a100 h100 t4 rtx3090 rtx4060 rtx4090 rtx5090 none", key);
            exit(2);
        }
        card = cards[i];
    }
    if (name)
        snprintf(card.name, sizeof card.name, "%s", name);
    card.memory = number("SOFTGPU_MEMORY_MIB", card.memory >> 20) << 20;
    card.sm_count = (int)number("SOFTGPU_SMS", (uint64_t)card.sm_count);
    card.capability = (int)number("SOFTGPU_CAPABILITY", (uint64_t)card.capability);
    card.l2_bytes = (int)number("SOFTGPU_L2_KIB", (uint64_t)card.l2_bytes / KIB) * KIB;
    card.shared_per_block = (int)number("SOFTGPU_SHARED_BYTES", (uint64_t)card.shared_per_block);
    return card;
}

/* Seed 0 runs operations as submitted and as late as possible. Another seed draws a policy and how much runs early. */
static void order_read(void)
{
    static const Policy drawn[] = {POLICY_ANY, POLICY_PRIORITY, POLICY_PRIORITY, POLICY_NEEDED, POLICY_NEEDED};
    settings.seed = number("SOFTGPU_SEED", 0);
    random_state = settings.seed * 0x2545f4914f6cdd1d + 1;
    settings.policy = settings.seed ? drawn[random_next() % 5] : POLICY_SUBMITTED;
    settings.eager = settings.seed ? (int)(random_next() % 3) : 0;
}

void settings_read(void)
{
    settings.card = card_read();
    order_read();
    settings.race = number("SOFTGPU_RACE", 0);
    settings.trace = number("SOFTGPU_TRACE", 0);
    settings.stop = number("SOFTGPU_STOP", 0);
    settings.drop_waits = number("SOFTGPU_DROP_WAITS", 0);
    settings.drop_wait = number("SOFTGPU_DROP_WAIT", 0);
    settings.poison = number("SOFTGPU_POISON", 1) ? 0xff : -1;
}

/* By the table of capabilities in the CUDA programming guide. */
int card_warps(void)
{
    switch (settings.card.capability) {
    case 75:
        return 32;
    case 86:
    case 89:
    case 120:
        return 48;
    default:
        return 64;
    }
}

/* SplitMix64: a counter through a mixing function. */
uint64_t random_next(void)
{
    uint64_t z = random_state += 0x9e3779b97f4a7c15;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return z ^ z >> 31;
}
