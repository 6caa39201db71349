/* An NVRTC for tests: FAKE_VERSION (such as 1209) says which one it is and which architectures it
 * knows. It "compiles" to a text that says what it was asked for; a source with #error fails.
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct Program {
  char text[4096];
  char lowered[256];
  int failed;
} Program;

static const int kArchs12[] = {50, 52, 60, 70, 75, 80, 86, 89, 90, 100, 120};
static const int kArchs13[] = {75, 80, 86, 89, 90, 100, 110, 120};
#define IS_12 (FAKE_VERSION < 1300)
#define COUNT(a) (int)(sizeof(a) / sizeof((a)[0]))

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
  (void)name;
  *program = calloc(1, sizeof(Program));
  snprintf((*program)->text, sizeof((*program)->text), "source %s", source);
  for (int i = 0; i < num_headers; ++i) {
    size_t used = strlen((*program)->text);
    snprintf((*program)->text + used, sizeof((*program)->text) - used, "header %s\n", names[i]);
    if (strstr(headers[i], "#error")) (*program)->failed = 1;
  }
  return 0;
}
int nvrtcDestroyProgram(Program** program) {
  free(*program);
  *program = NULL;
  return 0;
}
int nvrtcAddNameExpression(Program* program, const char* expression) {
  size_t used = strlen(program->text);
  snprintf(program->text + used, sizeof(program->text) - used, "kernel %s\n", expression);
  return 0;
}
int nvrtcCompileProgram(Program* program, int count, const char* const* options) {
  for (int i = 0; i < count; ++i) {
    size_t used = strlen(program->text);
    snprintf(program->text + used, sizeof(program->text) - used, "option %s\n", options[i]);
  }
  return program->failed ? 6 : 0;
}
int nvrtcGetProgramLogSize(Program* program, size_t* size) {
  *size = program->failed ? sizeof("line 3: #error found") : 1;
  return 0;
}
int nvrtcGetProgramLog(Program* program, char* log) {
  strcpy(log, program->failed ? "line 3: #error found" : "");
  return 0;
}
int nvrtcGetLoweredName(Program* program, const char* expression, const char** name) {
  snprintf(program->lowered, sizeof(program->lowered), "lowered_%s", expression);
  *name = program->lowered;
  return 0;
}
int nvrtcGetCUBINSize(Program* program, size_t* size) {
  *size = strlen(program->text);
  return 0;
}
int nvrtcGetCUBIN(Program* program, char* out) {
  memcpy(out, program->text, strlen(program->text));
  return 0;
}
int nvrtcGetPTXSize(Program* program, size_t* size) {
  *size = strlen(program->text) + 1;
  return 0;
}
int nvrtcGetPTX(Program* program, char* out) {
  memcpy(out, program->text, strlen(program->text) + 1);
  return 0;
}
