/*
 * opdock/opdock.h: the host's interface for programs, in C11.
 *
 * SPDX-License-Identifier: Apache-2.0
 *
 * A runtime finds plugins, judges them, loads the ones that are asked for, and calls their ops. The
 * Python package and the opdock command stand on this header alone. opdock.hpp wraps it for C++.
 *
 *   opdock_runtime* rt;
 *   opdock_runtime_create(NULL, &rt, err, sizeof err);
 *   opdock_function* softmax;
 *   opdock_get_function(rt, "softmax", &softmax, err, sizeof err);
 *   opdock_tensor* outputs[1] = {&y};
 *   opdock_invoke(softmax, NULL, args, num_args, outputs, 1, err, sizeof err);
 *
 * Errors     Every function that can fail returns an opdock_status and, if `error` is not NULL,
 *            writes one NUL-terminated text of at most error_size bytes: what was found, what was
 *            wanted, what to do. On success the buffer is left alone.
 * Threads    Every function may be called from any thread, on the same handles too, except that
 *            nothing may use a runtime while it is being destroyed.
 * Hooks      No lock is held while a function of the program runs (log, progress, cancelled,
 *            waiting, references): it may call every function of this header, from any thread. What
 *            would have to wait for the very work that called it (the op that is being built, a
 *            plugin that is being loaded, an op that takes one thread at a time and is running), by
 *            itself or through other threads, is OPDOCK_INVALID_ARGUMENT at once, with the reason
 *            within-itself. A hook must not destroy the runtime that called it.
 * Fork       fork() may come at any time, from any thread and from within a hook; nothing that the
 *            child calls waits for a thread that it does not have. What other threads of the parent
 *            were at is taken over (a scan, a build, a compilation) or refused at once, with the
 *            reason left-by-fork: a plugin that was being loaded, an op that takes one thread at a
 *            time and was running. GPU work in the child is OPDOCK_DEVICE_ERROR if the parent has
 *            done any, as the driver would have it. If a hook forks and comes back in the child,
 *            the work that called it is OPDOCK_CANCELLED there, and goes on in the parent. fork()
 *            waits for other threads only where they read or write a few words of memory.
 *            docs/concepts.md has the table. vfork() and posix_spawn() concern nothing here.
 * Two copies of this library in one process do not know of each other: each loads plugins of its
 *            own. Handles must not be passed between them.
 * Shutdown   Loaded plugins stay loaded until the process ends, also after their runtime is
 *            destroyed, because other code may hold pointers into them.
 * Privilege  In a set-user-ID or file-capability program (AT_SECURE) no environment variable, home
 *            folder or cache is read.
 */
#ifndef OPDOCK_OPDOCK_H_
#define OPDOCK_OPDOCK_H_

#include "opdock/plugin.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct opdock_runtime opdock_runtime;
typedef struct opdock_function opdock_function;

/* ------------------------------------------------------------------------------------- runtime */

/* Settings that cannot be are no error of opdock_runtime_create: opdock_doctor_json tells them, and
 * whatever would go by them is OPDOCK_INVALID_ARGUMENT with the first. */
#define OPDOCK_OPTIONS_DIAGNOSE 1u

typedef struct opdock_options {
  uint32_t struct_size;
  uint32_t flags; /* OPDOCK_OPTIONS_…; 0 */
  /* Colon-separated plugin folders or files that replace the default places, or NULL. An explicit
   * path is consent: its files are trusted. */
  const char* plugin_path;
  /* Folders searched after the user's own and before /etc, such as those that Python packages
   * announce: colon-separated, or NULL. Not consent. */
  const char* package_path;
  /* Where messages go, or NULL for stderr (warnings and errors only). Called from any thread, from
   * several at once. */
  void (*log)(void* context, int32_t level, const char* message);
  void* log_context;
  /* Threads for CPU ops, the caller's own included; 0 for the number of usable cores. */
  uint32_t num_threads;
  uint32_t reserved2;
  /* What is done where no compatible plugin is there (docs/build-on-demand.md). Each as text, or
   * NULL for what the environment (OPDOCK_BUILD, OPDOCK_JIT, OPDOCK_FALLBACK), the user's and the
   * system's configuration file say, in this order, and else the first value. A text that is none
   * of these is OPDOCK_INVALID_ARGUMENT. */
  const char* build;    /* "auto", "never", or "always": source plugins before binaries */
  const char* jit;      /* "auto" or "never" */
  const char* fallback; /* "warn", "error" or "silent" */
  /* Hooks of work that takes noticeable time: compiling, building, waiting for another process that
   * does. Called on the thread that asked for the function, or on a helper while that one waits;
   * never two at once for one piece of work. */
  void* hooks_context;
  /* Supersedes the text before. fraction: 0 to 1, below 0 where unknown. An empty text: done. NULL:
   * a line on stderr, which overwrites itself on a terminal. */
  void (*progress)(void* context, const char* text, double fraction);
  /* Asked every 50 ms or so; nonzero: stop, undo, and return OPDOCK_CANCELLED. NULL: never. */
  int32_t (*cancelled)(void* context);
  /* begins 1: this thread will now be busy for a while; 0: it is not any more. For an interpreter
   * to let its other threads run meanwhile. NULL: nothing. */
  void (*waiting)(void* context, int32_t begins);
  /* Who runs the ops' reference implementations, or NULL: then an op without a fitting plugin is an
   * error. Lives as long as the process. */
  const struct opdock_references* references;
} opdock_options;

/* Runs reference implementations (reference.py of a plugin). Each member gets opdock_options'
 * hooks_context. May be called from any thread. */
typedef struct opdock_references {
  uint32_t struct_size;
  uint32_t reserved;
  /* Whether there is one for op `op`; looks, runs nothing. file: the plugin's own, absolute, or
   * NULL: those the runner knows. */
  int32_t (*has)(void* context, const char* op, const char* file);
  /* Makes it ready to stand in for `function` on `device`: once for each. record: the steps that
   * failed before, as opdock_explain_json's "chain" has them with "story", a text for people, and
   * "warn", whether the user is to be told. *out goes to `run`; it is never given back. */
  opdock_status (*open)(void* context, opdock_function* function, opdock_device device,
                        const char* file, const char* record, void** out, char* error,
                        uint32_t error_size);
  /* As opdock_op.run: outputs are allocated, of the shapes that the op's shape rules give. */
  opdock_status (*run)(void* context, void* reference, const opdock_call* call,
                       const opdock_value* args, uint32_t num_args, opdock_tensor* const* outputs,
                       uint32_t num_outputs);
} opdock_references;

/* Creates a runtime; options may be NULL. Reads the environment now; touches no plugin, no device
 * and no driver until something is asked for. Give it back with opdock_runtime_destroy. */
OPDOCK_EXPORT opdock_status opdock_runtime_create(const opdock_options* options,
                                                  opdock_runtime** out, char* error,
                                                  uint32_t error_size);
/* Frees the runtime and its functions. NULL is fine. */
OPDOCK_EXPORT void opdock_runtime_destroy(opdock_runtime* runtime);

/* "0.1.0"; static. */
OPDOCK_EXPORT const char* opdock_version(void);
/* "invalid argument" for OPDOCK_INVALID_ARGUMENT, and so on; static. */
OPDOCK_EXPORT const char* opdock_status_name(opdock_status status);

/* ------------------------------------------------------------------------------------- reports */

/* Each writes a JSON text, NUL-terminated, that the caller frees with opdock_free. docs/verdicts.md
 * describes the members. They read files and machine facts; none loads a plugin, creates a context
 * on a device, or starts a process, except where the CUDA driver is present without NVML: then a
 * short-lived helper process asks it once. */

/* {"plugins": [{"kind", "name", "version", "path", "usable", "verdict", "devices", "ops",
 * "reasons": […]}]} for everything that discovery finds, in its order: shared objects (kind
 * "binary"), then source plugins (kind "source", verdict "buildable" or "rejected"). rescan: look
 * at the folders again. */
OPDOCK_EXPORT opdock_status opdock_list_json(opdock_runtime* runtime, int32_t rescan, char** out,
                                             char* error, uint32_t error_size);
/* One shared object, whatever it is: its ELF facts, GPU images, note if any, and verdict. Needs no
 * trust, as nothing of it is executed. OPDOCK_NOT_FOUND if there is no such file. */
OPDOCK_EXPORT opdock_status opdock_inspect_json(opdock_runtime* runtime, const char* path,
                                                char** out, char* error, uint32_t error_size);
/* How `name`, an op or a plugin, is or is not resolved: each candidate in order of preference, the
 * chosen one for each device, and every other one with its reasons. */
OPDOCK_EXPORT opdock_status opdock_explain_json(opdock_runtime* runtime, const char* name,
                                                char** out, char* error, uint32_t error_size);
/* What this machine has: CPU, C library, drivers, GPUs, tools; and what is missing for what. In a
 * process that has loaded plugins also whether one of their files has been overwritten in place. */
OPDOCK_EXPORT opdock_status opdock_doctor_json(opdock_runtime* runtime, char** out, char* error,
                                               uint32_t error_size);
/* The cache of what was compiled and built. action: "ls" (what is in it), "verify" (the same, every
 * byte checked, what is damaged set aside), "gc" (remove the least recently used beyond
 * OPDOCK_CACHE_MAX_BYTES, and what dead processes left), "clear", "export" or "import" (file: the
 * archive; else NULL). *out: an object, see docs/cache.md. OPDOCK_INVALID_ARGUMENT for another
 * action or a setting that cannot be; OPDOCK_INCOMPATIBLE where the folder, the file or its file
 * system cannot be used. May block on files. */
OPDOCK_EXPORT opdock_status opdock_cache_json(const char* action, const char* file, char** out,
                                              char* error, uint32_t error_size);
/* Every reason code: [{"code", "stage", "meaning", "cause", "advice"}]. */
OPDOCK_EXPORT opdock_status opdock_codes_json(char** out, char* error, uint32_t error_size);
/* Builds the source plugin in the folder `path`, or of the plugin.toml `path`, into the cache,
 * unless it is there already; docs/building.md. The path is consent: the folder is not asked
 * whether it can be trusted. May take minutes; opdock_options' hooks are told and asked. options:
 * NULL, or a JSON object with any of "cuda_archs", "hip_archs" (texts, docs/architectures.md),
 * "debug", "retry" (bools), "jobs", "timeout" (numbers; seconds, for each plugin). Writes
 * {"plugin", "version", "folder", "outcome": "built" | "cached" | "failed" | "skipped",
 * "cuda_archs", "hip_archs", "path" (of the shared object, or null), "built" (by this call), "by",
 * "seconds", "log", "changed", "warnings", "reasons"}. OPDOCK_OK also where it could not be built:
 * then "path" is null and "reasons" say why; of a plugin.toml with mistakes, which is told before
 * anything is compiled, "plugin" and "version" are null too. OPDOCK_INVALID_ARGUMENT for options
 * that cannot be, and where there is no plugin.toml.
 * path NULL: every source plugin that is found, one after the other, each judged for trust. Writes
 * {"plugins": [one such object each], "reasons"}; of a folder that is not built for another reason
 * than its build some members are absent. "skipped": switched off, found a second time, or for
 * GPUs that nobody asked for and whose compiler is not here. "reasons" are architectures that
 * cannot be compiled for: then nothing was started, and "plugins" is empty. */
OPDOCK_EXPORT opdock_status opdock_build_json(opdock_runtime* runtime, const char* path,
                                              const char* options, char** out, char* error,
                                              uint32_t error_size);
/* Copies the shared object `path` into the user's own plugin folder, as NAME.so by its note's name,
 * if this machine does not reject it. Whoever looks there finds the plugin that was there before or
 * the new one, whole; a process that has loaded the old one keeps it. The path is consent. May
 * block on files. Writes what opdock_list_json has of the plugin in its new place, and "path"
 * (null: it is rejected, "reasons" say why, and nothing was changed), "replaced" (the version that
 * it takes the place of, or null) and "found" (whether the search finds it there:
 * OPDOCK_PLUGIN_PATH may lead elsewhere). OPDOCK_INVALID_ARGUMENT for a path that is no readable
 * regular file, without a home folder, and where another plugin's file has the name;
 * OPDOCK_INTERNAL where it cannot be written. */
OPDOCK_EXPORT opdock_status opdock_install_json(opdock_runtime* runtime, const char* path,
                                                char** out, char* error, uint32_t error_size);
/* Tells the library that `library` ("torch", "python") is in this process in `version`
 * ("2.13.0+cpu"), where the caller knows and it could not be found out; plugins that declare the
 * library are judged by it from the next scan on. OPDOCK_INVALID_ARGUMENT for a version that does
 * not begin with numbers. */
OPDOCK_EXPORT opdock_status opdock_note_library(const char* library, const char* version,
                                                char* error, uint32_t error_size);
/* Every reason behind the last OPDOCK_NOT_FOUND or OPDOCK_INCOMPATIBLE that this thread got from
 * opdock_get_function, opdock_prepare or a call, and forgets them: [{"step", "plugin", "path",
 * "code", "stage", "severity", "text", "found", "wanted", "advice"}]; [] if there are none. "text"
 * says to people what "found" and "wanted" hold for programs. */
OPDOCK_EXPORT opdock_status opdock_take_reasons_json(char** out, char* error, uint32_t error_size);
/* Frees what a function of this header allocated. NULL is fine. */
OPDOCK_EXPORT void opdock_free(void* memory);

/* The user's consent to load plugins from `folder` (an absolute path) and what really lies below
 * it, kept in the user's own configuration. action: "add", "remove" or "list" (folder: NULL).
 * *out: {"folder", "consent" (it covers the folder now), "trusted" (plugins in it may be used, as
 * far as its place goes), "reasons"}, or {"file", "trusted" (paths), "reasons"} for "list". A link
 * is trusted where both its own place and its target's are. OPDOCK_INVALID_ARGUMENT for another
 * action, for what is no folder, and for one that is to be removed and is not listed. */
OPDOCK_EXPORT opdock_status opdock_trust_json(const char* action, const char* folder, char** out,
                                              char* error, uint32_t error_size);
/* opdock_trust_json's "add". */
OPDOCK_EXPORT opdock_status opdock_trust(const char* folder, char* error, uint32_t error_size);

/* ----------------------------------------------------------------------------------- functions */

/* Finds an op by name, or by "plugin/op" to insist on one plugin. Discovers and judges if that has
 * not happened, loads nothing yet. OPDOCK_NOT_FOUND if nothing provides it, OPDOCK_INCOMPATIBLE if
 * only unusable plugins do; the text has the reasons, opdock_explain_json all of them. The handle
 * belongs to the runtime; asking twice gives the same one. */
OPDOCK_EXPORT opdock_status opdock_get_function(opdock_runtime* runtime, const char* name,
                                                opdock_function** out, char* error,
                                                uint32_t error_size);

/* The schema's text, such as "softmax(Tensor x, …) -> Tensor", and the op's documentation (which is
 * in the plugin's code: asking for it loads the plugin, and gives "" if that fails). Valid as long
 * as the function. */
OPDOCK_EXPORT const char* opdock_function_schema(const opdock_function* function);
OPDOCK_EXPORT const char* opdock_function_doc(const opdock_function* function);

typedef struct opdock_param { /* one parameter of a schema; frozen */
  const char* name;
  uint32_t tag;          /* OPDOCK_TENSOR, OPDOCK_FLOAT, …; of the elements for a list */
  uint32_t flags;        /* OPDOCK_PARAM_… */
  opdock_value fallback; /* the default, if OPDOCK_PARAM_HAS_DEFAULT */
} opdock_param;
#define OPDOCK_PARAM_OPTIONAL 1u     /* None is accepted */
#define OPDOCK_PARAM_LIST 2u         /* a list of `tag` */
#define OPDOCK_PARAM_KEYWORD_ONLY 4u /* stands after the `*` */
#define OPDOCK_PARAM_HAS_DEFAULT 8u
#define OPDOCK_PARAM_WRITTEN 16u           /* Tensor(a!): the op writes into it */
#define OPDOCK_PARAM_OPTIONAL_ELEMENTS 32u /* Tensor?[]: elements may be None */

/* The schema's parameters, in order; valid as long as the function. */
OPDOCK_EXPORT const opdock_param* opdock_function_params(const opdock_function* function,
                                                         uint32_t* count);
/* How many fresh outputs the op has, and how many values it returns in all (aliased ones too). */
OPDOCK_EXPORT void opdock_function_results(const opdock_function* function, uint32_t* fresh,
                                           uint32_t* all);

/* 1 if a plugin that provides the function says that a call may wait, for the device or for
 * anything else (OPDOCK_OP_MAY_BLOCK, OPDOCK_OP_HOST_SYNC); 0 otherwise. Loads nothing. An
 * interpreter lets its other threads run meanwhile. */
OPDOCK_EXPORT int32_t opdock_function_may_block(const opdock_function* function);

/* Loads the plugins for the function, makes all their kernels ready on `device` (those that have to
 * be compiled, several at once) and prepares it, so that the next call there loads and compiles
 * nothing and may lie inside a graph capture. Without it a call makes ready the kernels that it
 * launches. A kernel that does not compile is an error; the others are ready all the same. */
OPDOCK_EXPORT opdock_status opdock_prepare(opdock_function* function, opdock_device device,
                                           char* error, uint32_t error_size);

typedef struct opdock_call_options {
  uint32_t struct_size;
  uint32_t flags;                    /* OPDOCK_CALL_… */
  void* stream;                      /* CUstream or hipStream_t; NULL is the default stream */
  const opdock_generator* generator; /* for ops that draw random numbers, or NULL */
  void* workspace;                   /* the caller's, of the planned size; NULL: the host's */
  uint64_t workspace_bytes;
} opdock_call_options;

/* Plans one call: checks the arguments (all parameters in the schema's order, see opdock_bind) and
 * fills in `plan`, whose `outputs` points at room for the function's fresh outputs and whose
 * struct_size goes at least to the end of `state`. Touches no device. Whether memory is shared is
 * looked at by opdock_run_planned. options may be NULL. */
OPDOCK_EXPORT opdock_status opdock_plan_call(opdock_function* function,
                                             const opdock_call_options* options,
                                             const opdock_value* args, uint32_t num_args,
                                             opdock_plan* plan, char* error, uint32_t error_size);

/* Runs what opdock_plan_call has planned, for the same function, arguments and options. outputs:
 * one tensor per fresh output, of the planned dtype, shape and device. What was planned over shapes
 * (OPDOCK_VALUE_NO_DATA) is first planned again with the data, as is a plan that ends before
 * `flags`. Enqueues on the stream and returns; CPU ops have finished. */
OPDOCK_EXPORT opdock_status opdock_run_planned(opdock_function* function,
                                               const opdock_call_options* options,
                                               const opdock_plan* plan, const opdock_value* args,
                                               uint32_t num_args, opdock_tensor* const* outputs,
                                               uint32_t num_outputs, char* error,
                                               uint32_t error_size);

/* Plans, checks the outputs against the plan, and runs. An output that is NULL is allocated by the
 * host and written to outputs[i]: give it back with opdock_tensor_free. On a GPU it is given back
 * in the order of options->stream, which must still exist then. */
OPDOCK_EXPORT opdock_status opdock_invoke(opdock_function* function,
                                          const opdock_call_options* options,
                                          const opdock_value* args, uint32_t num_args,
                                          opdock_tensor** outputs, uint32_t num_outputs,
                                          char* error, uint32_t error_size);
OPDOCK_EXPORT void opdock_tensor_free(opdock_tensor* tensor);

/* Puts positional and named arguments into the schema's order and fills in defaults. `bound` has
 * room for every parameter. Texts of the errors name the parameter. */
OPDOCK_EXPORT opdock_status opdock_bind(const opdock_function* function,
                                        const opdock_value* positional, uint32_t num_positional,
                                        const char* const* names, const opdock_value* named,
                                        uint32_t num_named, opdock_value* bound, char* error,
                                        uint32_t error_size);

#ifdef __cplusplus
}
#endif
#endif /* OPDOCK_OPDOCK_H_ */
