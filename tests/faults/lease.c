/* Has a lease on the file that is named, says so, and gives it up when the system tells that somebody wants the file. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <errno.h>
#include <unistd.h>

int main(int count, char **arguments) {
    int file = count > 1 ? open(arguments[1], O_RDWR) : -1;
    sigset_t wanted;
    int which;
    sigemptyset(&wanted);
    sigaddset(&wanted, SIGIO);
    sigprocmask(SIG_BLOCK, &wanted, NULL);
    if (file < 0 || fcntl(file, F_SETLEASE, F_WRLCK)) {
        printf("%s\n", strerror(errno));
        return 1;
    }
    printf("held\n");
    fflush(stdout);
    sigwait(&wanted, &which);
    fcntl(file, F_SETLEASE, F_UNLCK);
    pause();
}
