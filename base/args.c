#include "base/args.h"

#include <string.h>

void args_dashes(int argc, char **argv)
{
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++) {
        if (strncmp(argv[i], "--", 2) != 0)
            continue;
        for (char *c = argv[i]; *c && *c != '='; c++)
            if (*c == '_')
                *c = '-';
    }
}
