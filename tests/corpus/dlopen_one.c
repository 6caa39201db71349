/* dlopen_one FD FILE: opens a shared object and writes to FD what the dynamic loader answered.
 * SPDX-License-Identifier: Apache-2.0
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int main(int count, char** words) {
  if (count != 3) return 2;
  const int answer = atoi(words[1]);
  alarm(60); /* a constructor may block for ever */
  const int opened = dlopen(words[2], RTLD_NOW | RTLD_LOCAL) != NULL;
  if (opened) {
    dprintf(answer, "loaded");
  } else {
    dprintf(answer, "refused %s", dlerror());
  }
  _exit(0); /* skips destructors, which are not under test */
}
