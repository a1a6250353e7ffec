/* Option names with dashes or underscores: `--batch_size` and `--batch-size` are the same flag. argp knows only one
 * spelling, so the other is rewritten before argp looks. */
#ifndef TALLY_BASE_ARGS_H
#define TALLY_BASE_ARGS_H

/* Rewrites `_` to `-` in the option names among argv[1 .. argc-1], in place: in every argument that begins with `--`, up to its
 * `=` when it has one. Stops at a bare `--`. A value that itself begins with `--` must be written `--name=value`. */
void args_dashes(int argc, char **argv);

#endif
