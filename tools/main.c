/* tally: the command line. It is a file of its own so that tests can link all the others. */
#include "tools/commands.h"

int main(int argc, char **argv)
{
    return tally_main(argc, argv);
}
