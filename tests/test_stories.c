/* The stories' grammar: each story has exactly one derivation, with the probability that was said; what is to be expected of
 * them; what does not agree is none. */
#include "data/stories.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include <math.h>
#include <stdbool.h>

/* ---- All derivations of a text --------------------------------------------------------------------------------------- */

enum { CHOICES = 64 };

/* A derivation's choices, as far as they are made; story_tell is led along them and stops at the next one, of `ways` ways. */
typedef struct Path {
    int way[CHOICES], length, at;
    int weight[STORY_WAYS], ways;
} Path;

static int follow(void *user, const int *weight, int ways)
{
    Path *p = user;
    if (p->at < p->length)
        return p->way[p->at++];
    memcpy(p->weight, weight, (size_t)ways * sizeof *weight);
    p->ways = ways;
    return -1;
}

/* Counts the derivations of `text` that begin with the path's choices; *nats is that of the last one found. Where more than one
 * way goes on like the text, *forks counts it: then it takes more than the next words to tell the derivation. */
static int derivations(Path *p, const char *text, double *nats, int *forks)
{
    Story s;
    p->at = 0;
    p->ways = 0;
    story_tell(&s, follow, p);
    if (strncmp(text, s.text, (size_t)s.size) != 0)
        return 0;
    if (p->ways == 0) {
        *nats = s.nats;
        return text[s.size] == 0;
    }
    int weight[STORY_WAYS], ways = p->ways, found = 0, alive = 0;
    memcpy(weight, p->weight, sizeof weight);
    assert_true(p->length < CHOICES);
    for (int way = 0; way < ways; way++) {
        if (!weight[way])
            continue;
        p->way[p->length++] = way;
        p->at = 0;
        story_tell(&s, follow, p);
        if (strncmp(text, s.text, (size_t)s.size) == 0) {
            alive++;
            found += derivations(p, text, nats, forks);
        }
        p->length--;
    }
    *forks += alive > 1;
    return found;
}

static int parse(const char *text, double *nats, int *forks)
{
    Path p = {.length = 0};
    return derivations(&p, text, nats, forks);
}

static void one_derivation(void **state)
{
    (void)state;
    for (uint64_t number = 0; number < 1500; number++) {
        Story s;
        double nats = 0;
        int forks = 0;
        story_draw(&s, 7, number);
        assert_int_equal(s.size, strlen(s.text));
        assert_int_equal(parse(s.text, &nats, &forks), 1);
        assert_true(fabs(nats - s.nats) < 1e-12);
        assert_int_equal(forks, 0); /* each choice shows in the very next words, so it holds for all stories */
        assert_null(strchr(s.text, '\n'));
    }
}

/* Stories in which one word was changed so that it no longer agrees have no derivation. */
static void what_does_not_agree_is_none(void **state)
{
    (void)state;
    static const char *const stories[][2] = {
        {"One day a girl named Sue went to the farm. She had a blue kite, but it flew into a tree. Sue was sad. Then a boy named "
         "Max got "
         "the blue kite back by climbing up. \"Thank you, Max!\" said Sue. They became good friends.",
         NULL},
        {"She had", "He had"},                    /* the girl                    */
        {"the blue kite", "the red kite"},        /* a color                     */
        {"the blue kite", "the blue ball"},       /* a thing                     */
        {"by climbing up", "with a stick"},       /* how it is got back          */
        {"flew into a tree", "fell into a hole"}, /* what becomes of it          */
        {"Sue was sad", "Mia was sad"},           /* a name                      */
        {"you, Max", "you, Sue"},                 /* who has helped              */
        {"boy named Max", "girl named Sue"},      /* not the same child twice    */
        {"named Max got", "named Anna got"},      /* a boy's name                */
        {"good friends.", "good friends. "},      /* nothing more                */
        {"They became good friends.", ""},        /* nor less                    */
        {"There was a boy named Tom. One day he went to the lake. By accident he broke a cup. Tom ran away. All night he could "
         "not sleep. He "
         "learned that running away does not help.",
         NULL},
        {"he could not", "she could not"},
        {"running away does", "hiding a thing does"}, /* the lesson of another deed */
        {"All night he could not sleep.", "The owner smiled and forgave him."},
    };
    const char *whole = NULL;
    for (size_t i = 0; i < sizeof stories / sizeof *stories; i++) {
        char text[400];
        double nats = 0;
        int forks = 0;
        const char *from = stories[i][0], *to = stories[i][1];
        if (!to) {
            whole = from;
            if (parse(whole, &nats, &forks) != 1)
                fail_msg("is a story: %s", whole);
            continue;
        }
        const char *at = strstr(whole, from);
        assert_non_null(at);
        snprintf(text, sizeof text, "%.*s%s%s", (int)(at - whole), whole, to, at + strlen(from));
        if (parse(text, &nats, &forks) != 0)
            fail_msg("is no story: %s", text);
    }
}

/* The means of many stories are what the grammar is computed to have, within 4.5 standard errors. */
static void means_are_as_expected(void **state)
{
    (void)state;
    enum { N = 200000 };
    StoryMean m = stories_expected();
    double sum[2] = {0}, squares[2] = {0}, expected[2] = {m.nats, m.bytes};
    int longest = 0;
    for (uint64_t number = 0; number < N; number++) {
        Story s;
        story_draw(&s, 3, number);
        double value[2] = {s.nats, s.size};
        for (int i = 0; i < 2; i++) {
            sum[i] += value[i];
            squares[i] += value[i] * value[i];
        }
        longest = s.size > longest ? s.size : longest;
    }
    for (int i = 0; i < 2; i++) {
        double mean = sum[i] / N, error = sqrt((squares[i] / N - mean * mean) / N);
        if (fabs(mean - expected[i]) > 4.5 * error)
            fail_msg("mean %.6f, expected %.6f, standard error %.6f", mean, expected[i], error);
    }
    assert_in_range(m.longest, longest, STORY_MAX);
}

/* The probabilities of all ways to begin add up to 1: every derivation of at most so many choices, or its beginning. */
static double total(Path *p, int depth)
{
    Story s;
    p->at = p->ways = 0;
    story_tell(&s, follow, p);
    if (p->ways == 0 || depth == 0)
        return exp(-s.nats);
    double sum = 0;
    int weight[STORY_WAYS], ways = p->ways;
    memcpy(weight, p->weight, sizeof weight);
    for (int way = 0; way < ways; way++) {
        if (!weight[way])
            continue;
        p->way[p->length++] = way;
        sum += total(p, depth - 1);
        p->length--;
    }
    return sum;
}

static void probabilities_add_up(void **state)
{
    (void)state;
    Path p = {.length = 0};
    assert_true(fabs(total(&p, 7) - 1) < 1e-9);
}

static void a_story_is_a_function_of_seed_and_number(void **state)
{
    (void)state;
    Story a, b;
    story_draw(&a, 1, 5);
    story_draw(&b, 1, 6);
    assert_string_not_equal(a.text, b.text);
    story_draw(&b, 2, 5);
    assert_string_not_equal(a.text, b.text);
    story_draw(&b, 1, 5);
    assert_string_equal(a.text, b.text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_derivation),
        cmocka_unit_test(what_does_not_agree_is_none),
        cmocka_unit_test(means_are_as_expected),
        cmocka_unit_test(probabilities_add_up),
        cmocka_unit_test(a_story_is_a_function_of_seed_and_number),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
