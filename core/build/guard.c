/* opdock-guard PARENT COMMAND ARGUMENT…: runs the command and ensures that none of its
 * descendants outlives the command, this program, or the process PARENT that started it.
 *
 * A compiler's process tree cannot be killed by its process group, since ninja gives each of its
 * children a group of its own. This program adopts orphans (PR_SET_CHILD_SUBREAPER) and kills its
 * children, and those that it thereby inherits, until there are none. It reports how the command
 * ended on file descriptor 3, as "exit N", "signal N" or "start ERRNO".
 * SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { kReport = 3 };

static void report(const char* what, int number) {
  char text[32];
  const int size = snprintf(text, sizeof text, "%s %d\n", what, number);
  if (write(kReport, text, (size_t)size) < 0) return; /* the host has closed its end */
}

static pid_t parent_of(const char* pid) {
  char path[64], text[512];
  snprintf(path, sizeof path, "/proc/%.20s/stat", pid);
  const int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return 0;
  const ssize_t size = read(fd, text, sizeof text - 1);
  close(fd);
  if (size <= 0) return 0;
  text[size] = 0;
  /* "PID (NAME) STATE PPID": a name may contain anything, so it ends at the last parenthesis. */
  const char* end = strrchr(text, ')');
  return end != NULL && strlen(end) > 4 ? (pid_t)atoi(end + 4) : 0;
}

static void kill_children(void) {
  DIR* folder = opendir("/proc");
  if (folder == NULL) return;
  for (struct dirent* entry = readdir(folder); entry != NULL; entry = readdir(folder)) {
    if (!isdigit((unsigned char)entry->d_name[0])) continue;
    if (parent_of(entry->d_name) == getpid()) kill((pid_t)atoi(entry->d_name), SIGKILL);
  }
  closedir(folder);
}

/* Loops until no child is left, because the children of a process that dies become children of this
 * process. */
static void kill_descendants(void) {
  for (;;) {
    while (waitpid(-1, NULL, WNOHANG) > 0) {
    }
    if (waitpid(-1, NULL, WNOHANG) < 0 && errno == ECHILD) return;
    kill_children();
    usleep(500);
  }
}

int main(int argc, char** argv) {
  if (argc < 3) {
    fprintf(stderr, "opdock-guard: it is started by Opdock's builder\n");
    return 2;
  }
  sigset_t waited, before;
  sigemptyset(&waited);
  sigaddset(&waited, SIGCHLD);
  sigaddset(&waited, SIGTERM);
  sigaddset(&waited, SIGINT);
  sigaddset(&waited, SIGHUP);
  sigprocmask(SIG_BLOCK, &waited, &before);
  fcntl(kReport, F_SETFD, FD_CLOEXEC);
#ifdef SYS_close_range
  syscall(SYS_close_range, kReport + 1, ~0U, 0); /* descriptors that the host left open */
#endif
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  /* The parent may have died before the prctl() above. */
  if (getppid() != (pid_t)atoi(argv[1])) return 125;
  prctl(PR_SET_CHILD_SUBREAPER, 1);

  int failed[2];
  if (pipe2(failed, O_CLOEXEC) != 0) {
    report("start", errno);
    return 125;
  }
  const pid_t self = getpid();
  const pid_t command = fork();
  if (command == 0) {
    /* If this program is killed, the command gets SIGTERM: ninja then ends its own children. */
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != self) _exit(125);
    sigprocmask(SIG_SETMASK, &before, NULL);
    execv(argv[2], argv + 2);
    const int error = errno;
    if (write(failed[1], &error, sizeof error) < 0) _exit(126);
    _exit(127);
  }
  close(failed[1]);
  int error = command < 0 ? errno : 0;
  if (command < 0 || read(failed[0], &error, sizeof error) == (ssize_t)sizeof error) {
    report("start", error);
    kill_descendants();
    return 125;
  }

  for (;;) {
    int signal_number = 0;
    if (sigwait(&waited, &signal_number) != 0) continue;
    if (signal_number != SIGCHLD) {
      kill_descendants();
      report("signal", SIGKILL);
      return 124;
    }
    int status = 0;
    pid_t ended;
    while ((ended = waitpid(-1, &status, WNOHANG)) > 0) {
      if (ended != command) continue; /* an orphan that was adopted */
      kill_descendants();
      if (WIFEXITED(status))
        report("exit", WEXITSTATUS(status));
      else
        report("signal", WTERMSIG(status));
      return 0;
    }
  }
}
