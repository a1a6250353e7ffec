/* tally: the command line. It is a file of its own so that tests can link all the others. */
#include "base/file.h"
#include "tools/commands.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* What was printed and could not be written is a failure, whatever the command says. */
static void output_check(void)
{
    errno = 0;
    if (fflush(stdout) == 0 && !ferror(stdout))
        return;
    fprintf(stderr, "tally: standard output: cannot write%s%s\n", errno ? ": " : "", errno ? strerror(errno) : "");
    _exit(1);
}

/* A standard stream that the caller has closed leaves its number to the next file, which would get what is printed. A file that
 * may not grow is an error with a name, not the end. */
static void process_begin(void)
{
    int fd = 0;
    while (fd >= 0 && fd <= STDERR_FILENO)
        fd = open("/dev/null", O_RDWR);
    if (fd >= 0)
        close(fd);
    signal(SIGXFSZ, SIG_IGN);
    file_maps_guard();
    atexit(output_check);
}

int main(int argc, char **argv)
{
    process_begin();
    return tally_main(argc, argv);
}
