/* A corpus whose floor is known: short stories out of a probabilistic grammar (the table is data/stories_grammar.c).
 *
 * In a story names, objects and consequences agree across its sentences, which a model can only learn by looking back. Yet a
 * text has one derivation at most: at each choice the alternatives begin differently. So the product of the choices'
 * probabilities is the text's probability, and no model of any kind can have a lower mean loss than the grammar's entropy. */
#ifndef TALLY_DATA_STORIES_H
#define TALLY_DATA_STORIES_H

#include <stdint.h>

enum {
    STORY_MAX = 255, /* bytes; with the line's end a story fits a window of 256 */
    STORY_WAYS = 20  /* alternatives of one choice, at most                     */
};

typedef struct Story {
    char text[STORY_MAX + 1]; /* ASCII without a line's end; NUL behind it */
    int size;                 /* bytes                                     */
    double nats;              /* -log of its probability                   */
} Story;

/* Chooses among `ways` alternatives of these weights: 0 .. ways-1, or -1 to stop the story there. */
typedef int StoryChoose(void *user, const int *weight, int ways);

/* Tells the story to which choose(user, ...) leads; when it stops, *s holds the beginning so far. */
void story_tell(Story *s, StoryChoose *choose, void *user);

/* Story `number` of the corpus of that seed: a pure function of both. Each way is drawn with its probability, but for the 2^-32
 * that a random number of 32 bits is apart from uniform. */
void story_draw(Story *s, uint64_t seed, uint64_t number);

/* What a story is expected to have: computed from the grammar, not estimated. Bytes are without the line's end. */
typedef struct StoryMean {
    double nats, bytes; /* the entropy, and the mean length */
    int longest;        /* bytes of the longest there is    */
} StoryMean;

StoryMean stories_expected(void);

#endif
