/* Opens one shared object as `dlopen FILE` would and says what the dynamic loader answered.
 * SPDX-License-Identifier: Apache-2.0
 */
#include <dlfcn.h>
#include <stdio.h>
#include <unistd.h>

int main(int count, char** words) {
  if (count != 2) return 2;
  alarm(60); /* a constructor may wait for what never comes */
  const int opened = dlopen(words[1], RTLD_NOW | RTLD_LOCAL) != NULL;
  if (opened) {
    dprintf(3, "loaded");
  } else {
    dprintf(3, "refused %s", dlerror());
  }
  _exit(0); /* destructors are not what is asked */
}
