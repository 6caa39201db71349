/* A stand-in for NVRTC, for tests of its callers. Its "cubin" is a text that lists what it was
 * asked to compile. FAKE_VERSION (for example 1209) is its version. A program's source may contain
 * commands: "#error" fails at line 3, "SLEEP=200" takes that many milliseconds, "UNTIL=/a/file"
 * waits for the file, "CRASH" aborts, "HANG" never ends, "NOMEMORY" fails with a compiler-internal
 * error, "FLOOD" first prints 100 MB.
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <threads.h>
#include <unistd.h>

typedef struct Program {
  char* source;
  char* out;
  char name[256];
  char lowered[512];
  char log[512];
  int (*ask)(void*, void*);
  void* payload;
} Program;

/* Counts the compilations of all programs; tests read it through dlsym. */
int fake_compiles = 0;

static const int kArchs12[] = {50, 52, 60, 70, 75, 80, 86, 89, 90, 100, 120};
static const int kArchs13[] = {75, 80, 86, 89, 90, 100, 110, 120};
#define IS_12 (FAKE_VERSION < 1300)
#define COUNT(a) (int)(sizeof(a) / sizeof((a)[0]))

static void append(char** text, const char* label, const char* part) {
  size_t used = *text ? strlen(*text) : 0;
  *text = realloc(*text, used + strlen(label) + strlen(part) + 2);
  sprintf(*text + used, "%s%s\n", label, part);
}

int nvrtcVersion(int* major, int* minor) {
  *major = FAKE_VERSION / 100;
  *minor = FAKE_VERSION % 100;
  return 0;
}
int nvrtcGetNumSupportedArchs(int* count) {
  *count = IS_12 ? COUNT(kArchs12) : COUNT(kArchs13);
  return 0;
}
int nvrtcGetSupportedArchs(int* archs) {
  memcpy(archs, IS_12 ? kArchs12 : kArchs13, IS_12 ? sizeof(kArchs12) : sizeof(kArchs13));
  return 0;
}
const char* nvrtcGetErrorString(int code) {
  return code ? "FAKE_ERROR" : "FAKE_SUCCESS";
}
int nvrtcCreateProgram(Program** program, const char* source, const char* name, int num_headers,
                       const char* const* headers, const char* const* names) {
  *program = calloc(1, sizeof(Program));
  snprintf((*program)->name, sizeof((*program)->name), "%s", name);
  append(&(*program)->out, "version ", IS_12 ? "12" : "13");
  append(&(*program)->source, "", source);
  append(&(*program)->out, "source ", source);
  for (int i = 0; i < num_headers; ++i) {
    append(&(*program)->out, "header ", names[i]);
    append(&(*program)->source, "", headers[i]);
  }
  return 0;
}
int nvrtcDestroyProgram(Program** program) {
  free((*program)->source);
  free((*program)->out);
  free(*program);
  *program = NULL;
  return 0;
}
int nvrtcAddNameExpression(Program* program, const char* expression) {
  append(&program->out, "kernel ", expression);
  return 0;
}
int nvrtcSetFlowCallback(Program* program, int (*ask)(void*, void*), void* payload) {
  program->ask = ask;
  program->payload = payload;
  return 0;
}
int nvrtcCompileProgram(Program* program, int count, const char* const* options) {
  __atomic_fetch_add(&fake_compiles, 1, __ATOMIC_SEQ_CST);
  for (int i = 0; i < count; ++i) {
    append(&program->out, "option ", options[i]);
    if (strcmp(options[i], "--unknown") == 0) {
      snprintf(program->log, sizeof(program->log), "unrecognized option --unknown");
      return 5;
    }
  }
  const char* sleeps = strstr(program->source, "SLEEP=");
  const char* until = strstr(program->source, "UNTIL=");
  char file[256] = "/";
  if (until) sscanf(until, "UNTIL=%255s", file);
  for (int left = sleeps ? atoi(sleeps + 6) : 0; left > 0 || access(file, F_OK) != 0; left -= 10) {
    if (program->ask && program->ask(program->payload, NULL)) return 13;
    thrd_sleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
  }
  if (strstr(program->source, "CRASH")) {
    fprintf(stderr, "fake compiler: cannot go on\n");
    abort();
  }
  if (strstr(program->source, "HANG"))
    for (;;) pause();
  if (strstr(program->source, "NOMEMORY")) return 1;
  if (strstr(program->source, "FLOOD"))
    for (int i = 0; i < 100 << 10; ++i) {
      char line[1025];
      memset(line, 'x', 1024);
      line[1024] = 0;
      fputs(line, i % 2 ? stdout : stderr);
    }
  if (strstr(program->source, "#error")) {
    snprintf(program->log, sizeof(program->log), "%s(3): error: #error found", program->name);
    return 6;
  }
  return 0;
}
int nvrtcGetProgramLogSize(Program* program, size_t* size) {
  *size = strlen(program->log) + 1;
  return 0;
}
int nvrtcGetProgramLog(Program* program, char* log) {
  strcpy(log, program->log);
  return 0;
}
int nvrtcGetLoweredName(Program* program, const char* expression, const char** name) {
  snprintf(program->lowered, sizeof(program->lowered), "lowered_%s", expression);
  *name = program->lowered;
  return 0;
}
int nvrtcGetCUBINSize(Program* program, size_t* size) {
  *size = strlen(program->out);
  return 0;
}
int nvrtcGetCUBIN(Program* program, char* out) {
  memcpy(out, program->out, strlen(program->out));
  return 0;
}
int nvrtcGetPTXSize(Program* program, size_t* size) {
  *size = strlen(program->out) + 1;
  return 0;
}
int nvrtcGetPTX(Program* program, char* out) {
  memcpy(out, program->out, strlen(program->out) + 1);
  return 0;
}
