/*
 * opdock/opdock.h: the host's interface for programs, in C11.
 *
 * SPDX-License-Identifier: Apache-2.0
 *
 * A runtime finds plugins, checks them, loads those that are asked for, and calls their ops. The
 * Python package and the opdock command use only this header. opdock.hpp wraps it for C++.
 *
 *   opdock_runtime* rt;
 *   opdock_runtime_create(NULL, &rt, err, sizeof err);
 *   opdock_function* softmax;
 *   opdock_get_function(rt, "softmax", &softmax, err, sizeof err);
 *   opdock_value results[1] = {{0}};
 *   opdock_invoke(softmax, NULL, args, num_args, results, 1, err, sizeof err);
 *   // results[0].as.tensor …
 *   opdock_value_free(&results[0]);
 *
 * Errors     Every function that can fail returns an opdock_status and, if `error` is not NULL,
 *            writes one NUL-terminated text of at most error_size bytes: what was found, what was
 *            wanted, what to do. Its content matters only if the status is not OPDOCK_OK.
 * Tags       A function's comment begins with a tag, such as [any thread]: from where the function
 *            may be called or, for a function of the program, is called. plugin.h defines them.
 * Threads    Every function may be called from any thread, also on handles that other threads use,
 *            except that nothing may use a runtime while it is being destroyed.
 * Hooks      No lock is held while a hook, a function of the program, runs (log, progress,
 *            cancelled, waiting, references): it may call every function of this header, from any
 *            thread. A call that would have to wait, directly or through other threads, for the
 *            work that called the hook (an op that is being built, a plugin that is being loaded,
 *            an op that takes one thread at a time and is running) fails at once with
 *            OPDOCK_INVALID_ARGUMENT and the reason within-itself. A hook must not destroy the
 *            runtime that called it.
 * Fork       fork() may come at any time, from any thread and from within a hook; nothing that the
 *            child calls waits for a thread that it does not have. The child takes over a scan, a
 *            build or a compilation that another thread of the parent was doing. It refuses at
 *            once, with the reason left-by-fork, a plugin that was being loaded and an op that
 *            takes one thread at a time and was running. GPU work in the child is
 *            OPDOCK_DEVICE_ERROR if the parent has done any, because drivers do not support it. If
 *            a hook forks and returns in the child, the work that called it is OPDOCK_CANCELLED
 *            there, and continues in the parent. fork() waits for other threads only while they
 *            read or write a few words of memory. docs/concepts/concepts.md has the list. vfork() and
 *            posix_spawn() do not affect this library.
 * Two copies of this library in one process are independent: each loads its own plugins. Handles
 *            must not be passed between them.
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

/* Opaque handles. A function belongs to the runtime that it was requested from. */
typedef struct opdock_runtime opdock_runtime;
typedef struct opdock_function opdock_function;

/* ------------------------------------------------------------------------------------- runtime */

/* With this flag, opdock_runtime_create accepts invalid settings: opdock_doctor_json reports them,
 * and each function that depends on them fails with OPDOCK_INVALID_ARGUMENT and names the first
 * one. */
#define OPDOCK_OPTIONS_DIAGNOSE 1u

typedef struct opdock_options {
  uint32_t struct_size;
  uint32_t flags; /* OPDOCK_OPTIONS_…; 0 */
  /* Colon-separated plugin folders or files that replace the default search folders, or NULL.
   * Naming a path is consent: its files are trusted. */
  const char* plugin_path;
  /* Colon-separated folders, or NULL, that are searched after the user's own and before /etc, such
   * as the folders that Python packages announce. Naming them here is not consent. */
  const char* package_path;
  /* [any thread]
   * Receives messages; if NULL, warnings and errors go to stderr. */
  void (*log)(void* context, int32_t level, const char* message);
  void* log_context;
  /* The number of threads for CPU ops, the calling thread included. 0: as many as the process's
   * OpenMP runtime (PyTorch's) would use on the calling thread or, without such a runtime, the
   * number of usable cores. */
  uint32_t num_threads;
  uint32_t reserved2;
  /* How to proceed if there is no compatible plugin (docs/concepts/build-on-demand.md). NULL: the
   * first setting found in the environment (OPDOCK_BUILD, OPDOCK_JIT, OPDOCK_FALLBACK), the user's
   * configuration file and the system's, in this order, and otherwise the first value listed here.
   * Any other text is OPDOCK_INVALID_ARGUMENT. */
  const char* build;    /* "auto", "never", or "always": source plugins before binaries */
  const char* jit;      /* "auto", "never", or "always": formulas on the CPU at their first call */
  const char* fallback; /* "warn", "error" or "silent" */
  /* The context of the hooks below, which are for work that takes noticeable time: compiling,
   * building, or waiting for another process that compiles or builds. They are called on the thread
   * that asked for the function, or on a helper thread while that thread waits, and never two at
   * once for one piece of work. */
  void* hooks_context;
  /* [calling thread, helper thread]
   * Shows progress. Each text replaces the one before; an empty text means done. fraction: 0 to 1,
   * negative if unknown. NULL: the text is written as a line to stderr, which is overwritten on a
   * terminal. */
  void (*progress)(void* context, const char* text, double fraction);
  /* [calling thread, helper thread]
   * Called about every 50 ms. Returns nonzero to stop the work, which is undone and returns
   * OPDOCK_CANCELLED. NULL: the work is never cancelled. */
  int32_t (*cancelled)(void* context);
  /* [calling thread]
   * Lets an interpreter run its other threads while the calling thread is busy. begins 1: the
   * thread will now be busy for a while; 0: it no longer is. NULL: not called. */
  void (*waiting)(void* context, int32_t begins);
  /* Runs the ops' reference implementations. NULL: a call of an op without a compatible plugin
   * fails. The struct must stay valid until the process ends. */
  const struct opdock_references* references;
} opdock_options;

/* Runs reference implementations (reference.py of a plugin). Each function gets hooks_context of
 * opdock_options as its context. */
typedef struct opdock_references {
  uint32_t struct_size;
  uint32_t reserved;
  /* [any thread]
   * Returns nonzero if there is a reference for op `op`; runs nothing. file: the absolute path of
   * the plugin's own reference, or NULL for the references that the runner knows. */
  int32_t (*has)(void* context, const char* op, const char* file);
  /* [any thread]
   * Makes the reference ready to replace `function` on `device`; called once for each such pair.
   * record: a JSON text with the steps that failed before, as in "chain" of opdock_explain_json,
   * with "story", a text for people, and "warn", whether to warn the user. *out is passed to `run`;
   * it is never released. */
  opdock_status (*open)(void* context, opdock_function* function, opdock_device device,
                        const char* file, const char* record, void** out, char* error,
                        uint32_t error_size);
  /* [any thread]
   * Runs the reference as opdock_op.run runs an op. Fresh tensors are already allocated, with the
   * shapes that the op's shape rules give. */
  opdock_status (*run)(void* context, void* reference, const opdock_call* call,
                       const opdock_value* args, uint32_t num_args, opdock_value* results,
                       uint32_t num_results);
} opdock_references;

/* [any thread]
 * Creates a runtime; options may be NULL. Reads the environment now; touches no plugin, no device
 * and no driver until something is asked for. Free it with opdock_runtime_destroy. */
OPDOCK_EXPORT opdock_status opdock_runtime_create(const opdock_options* options,
                                                  opdock_runtime** out, char* error,
                                                  uint32_t error_size);
/* [any thread, nothing else uses the runtime]
 * Frees the runtime and its functions. NULL is fine. */
OPDOCK_EXPORT void opdock_runtime_destroy(opdock_runtime* runtime);

/* [any thread]
 * Returns the library's version, such as "0.1.0"; the text is static. */
OPDOCK_EXPORT const char* opdock_version(void);
/* [any thread]
 * Returns the name of a status, such as "invalid argument" for OPDOCK_INVALID_ARGUMENT; the text is
 * static. */
OPDOCK_EXPORT const char* opdock_status_name(opdock_status status);

/* ------------------------------------------------------------------------------------- reports */

/* Each function here whose name ends with _json writes a NUL-terminated JSON text that the caller
 * frees with opdock_free. docs/reference/verdicts.md describes the members. The functions read
 * files and machine facts. None loads a plugin, creates a context on a device, or starts a process,
 * with two exceptions: if the CUDA driver is present without NVML, a short-lived helper process
 * asks the driver once; and opdock_survey_json and opdock_build_json start processes, as their
 * comments say. */

/* [any thread]
 * Writes {"plugins": [{"kind", "name", "version", "path", "usable", "verdict", "devices", "ops",
 * "reasons": […]}]} for everything that discovery finds, in its order: shared objects (kind
 * "binary"), then source plugins (kind "source", verdict "buildable" or "rejected"). rescan:
 * nonzero to look at the folders again. */
OPDOCK_EXPORT opdock_status opdock_list_json(opdock_runtime* runtime, int32_t rescan, char** out,
                                             char* error, uint32_t error_size);
/* [any thread]
 * Describes any one file: its ELF facts, its GPU images, its note if it has one, and the verdict.
 * Needs no trust, as none of its code is executed. OPDOCK_NOT_FOUND if there is no such file. */
OPDOCK_EXPORT opdock_status opdock_inspect_json(opdock_runtime* runtime, const char* path,
                                                char** out, char* error, uint32_t error_size);
/* [any thread]
 * Reports whether the native code of many files or packages will run, and if not, why. request: a
 * JSON object with any of "paths" (shared objects, programs, wheels, folders, virtual
 * environments), "packages" (names of installed packages), "environment" (true: all packages that
 * are installed), "sites" (where packages are installed; without it the Python of $VIRTUAL_ENV or
 * PATH is asked, which starts a process), "with" (names of installed packages that are imported
 * first), and a description of the machine, if it is not this one: "gpus" (texts such as "sm_100"),
 * "driver", "cuda", "glibc", "libstdcxx", "arch", "cpu", "rocm" (texts; docs/reference/inspect.md).
 * Writes
 * {"machine", "packages", "skipped", "reasons", "summary"}. Needs no trust. OPDOCK_NOT_FOUND for a
 * package that is not installed, OPDOCK_INVALID_ARGUMENT for a path that does not exist and for an
 * invalid request. Reads files on as many threads as there are cores; the hooks of opdock_options
 * are called on the caller's thread. */
OPDOCK_EXPORT opdock_status opdock_survey_json(opdock_runtime* runtime, const char* request,
                                               char** out, char* error, uint32_t error_size);
/* [any thread, before any other use of the runtime]
 * Makes the runtime's reports on plugins (list, explain) describe what another machine would do,
 * from now on. machine: a JSON object with any of "gpus" (texts such as "sm_100"), "driver", "cuda"
 * and "rocm" (texts), as in opdock_survey_json; the rest of the machine is this one. GPUs that
 * would be served by compiling a plugin's source count as served. The runtime then loads nothing.
 * Call this before any other function with the runtime. OPDOCK_INVALID_ARGUMENT for an impossible
 * machine. */
OPDOCK_EXPORT opdock_status opdock_runtime_describe(opdock_runtime* runtime, const char* machine,
                                                    char* error, uint32_t error_size);
/* [any thread]
 * Reports the differences between the files `a` and `b`, such as two builds of one library:
 * architectures, toolkits, libraries and symbol versions needed, symbols, sizes. Each may be a
 * member of a wheel: "foo.whl/foo/x.so". Writes {"equal", "a", "b", …}, docs/reference/inspect.md.
 * OPDOCK_NOT_FOUND if there is no such file. */
OPDOCK_EXPORT opdock_status opdock_inspect_diff_json(opdock_runtime* runtime, const char* a,
                                                     const char* b, char** out, char* error,
                                                     uint32_t error_size);
/* [any thread]
 * Explains how `name`, an op or a plugin, is resolved, or why it is not: each candidate in order of
 * preference, the chosen one for each device, and every other candidate with its reasons. */
OPDOCK_EXPORT opdock_status opdock_explain_json(opdock_runtime* runtime, const char* name,
                                                char** out, char* error, uint32_t error_size);
/* [any thread]
 * Reports what this machine has (CPU, C library, drivers, GPUs, tools) and what is missing for
 * which purpose; in a process that has loaded plugins, also whether one of their files has been
 * overwritten in place. */
OPDOCK_EXPORT opdock_status opdock_doctor_json(opdock_runtime* runtime, char** out, char* error,
                                               uint32_t error_size);
/* [any thread]
 * Lists or changes the cache of compiled and built code. action: "ls" (list the entries), "verify"
 * (also check every byte and set damaged entries aside), "gc" (remove the least recently used
 * entries beyond OPDOCK_CACHE_MAX_BYTES, and the leftovers of dead processes), "clear", "export",
 * "import", which refuses an archive with compiled code (anybody can make one), or
 * "import-trusted", for an archive from someone who may run code here. file: the archive; NULL for
 * the other actions. *out: an object, see docs/reference/cache.md. OPDOCK_INVALID_ARGUMENT for
 * another action or an invalid setting; OPDOCK_INCOMPATIBLE if the folder, the file or its file
 * system cannot be used. May block on files. */
OPDOCK_EXPORT opdock_status opdock_cache_json(const char* action, const char* file, char** out,
                                              char* error, uint32_t error_size);
/* [any thread]
 * For `opdock bench --tune`: measures which of several ways to launch an op is the fastest
 * (opdock.tuning/1), and stores, lists and removes results; docs/guide/tuning.md. request: a JSON
 * object, or NULL. action:
 *   "measure"  From now on, records the questions that calls of this process ask. "choice" (a
 *              number; -1: the plugin's own choice) is the answer to all of them, or only to
 *              "question" (as below); other questions are answered as usual. Do not use it while
 *              calls run that are not to be measured.
 *   "stop"     Ends "measure".
 *   "asked"    Writes the questions that were asked since the last "asked": {"asked": [{"plugin",
 *              "version", "build", "device", "op", "question": "0x12ab", "count": number of ways}]}.
 *   "store"    Stores {"plugin", "version", "build", "device", "results": [{"question", "choice",
 *              "count", "situation" (a text), "default_us", "best_us"}]} in the cache, in place of
 *              older results of the same questions (choice -1: the old result is only removed), for
 *              all processes that load the plugin later, and for this one at once. Writes {"folder"}.
 *   "list"     Writes {"folder", "stored": [{"plugin", "version", "build", "device", "created",
 *              "path", "results"}]}.
 *   "forget"   Removes the stored results of {"plugin"}, or all results without it, and writes them
 *              as "list" does. This process goes on with the results that it has loaded.
 * OPDOCK_INVALID_ARGUMENT for another action or an invalid request; OPDOCK_INCOMPATIBLE if the
 * cache cannot be used. May block on files. */
OPDOCK_EXPORT opdock_status opdock_tuning_json(const char* action, const char* request, char** out,
                                               char* error, uint32_t error_size);
/* [any thread]
 * Writes every reason code: [{"code", "stage", "meaning", "cause", "advice"}]. */
OPDOCK_EXPORT opdock_status opdock_codes_json(char** out, char* error, uint32_t error_size);
/* [any thread]
 * Builds the source plugin in the folder `path`, or of the plugin.toml `path`, into the cache,
 * unless it is there already; docs/reference/building.md. The path is consent: trust is not
 * checked. May take minutes; the hooks in opdock_options are called. options: NULL, or a JSON
 * object with any of "cuda_archs", "hip_archs" (texts, docs/reference/architectures.md), "debug",
 * "retry" (bools), "jobs", "timeout" (numbers; seconds, for each plugin). Writes {"plugin",
 * "version", "folder", "outcome": "built" | "cached" | "failed" | "skipped", "cuda_archs",
 * "hip_archs", "path" (of the shared object, or null), "built" (by this call), "by", "seconds",
 * "log", "changed", "warnings", "reasons"}. Returns OPDOCK_OK even if the plugin could not be
 * built: then "path" is null and "reasons" say why. For a plugin.toml with mistakes, which are
 * reported before anything is compiled, "plugin" and "version" are null too.
 * OPDOCK_INVALID_ARGUMENT for invalid options, and if there is no plugin.toml. path NULL: every
 * source plugin that is found, one after the other; trust is checked for each. Writes {"plugins":
 * [one such object each], "reasons"}; a folder that is not built for a reason other than a failed
 * build lacks some members. "skipped": switched off, found a second time, or for GPUs that were not
 * asked for and whose compiler is missing. "reasons" are architectures that cannot be compiled for:
 * then nothing was started, and "plugins" is empty. */
OPDOCK_EXPORT opdock_status opdock_build_json(opdock_runtime* runtime, const char* path,
                                              const char* options, char** out, char* error,
                                              uint32_t error_size);
/* [any thread]
 * Copies the shared object `path` into a plugin folder, as NAME.so with the name in its note,
 * unless this machine rejects it. options: NULL, or a JSON object that may have "folder" (default:
 * the user's own plugin folder; it is created if needed) and "force" (true: a plugin that this
 * machine rejects is installed too, and any file of that name is replaced). A reader finds either
 * the previous plugin or the new one, complete; a process that has loaded the old one keeps it. The
 * path is consent. May block on files. Writes the members that opdock_list_json has for the
 * installed plugin, and "path" (null: the plugin is rejected, "reasons" say why, and nothing was
 * changed), "replaced" (the version that it replaces, or null) and "found" (whether the search
 * finds it there: OPDOCK_PLUGIN_PATH may lead elsewhere). OPDOCK_INVALID_ARGUMENT for a path that
 * is not a readable regular file, for other options, without a home folder, and if another plugin's
 * file has the name; OPDOCK_INTERNAL if the file cannot be written. */
OPDOCK_EXPORT opdock_status opdock_install_json(opdock_runtime* runtime, const char* path,
                                                const char* options, char** out, char* error,
                                                uint32_t error_size);
/* [any thread]
 * Removes the plugin `name` from the user's own plugin folder; a process that has loaded it keeps
 * it. Writes {"name", "version" and "path" of the removed plugin, "path_left" (a plugin of that
 * name that the search still finds, or null)}. OPDOCK_NOT_FOUND if no such plugin is installed
 * there, OPDOCK_INVALID_ARGUMENT without a home folder and if the file of that name is another
 * plugin's, OPDOCK_INTERNAL if it cannot be removed. */
OPDOCK_EXPORT opdock_status opdock_uninstall_json(opdock_runtime* runtime, const char* name,
                                                  char** out, char* error, uint32_t error_size);
/* [any thread]
 * Tells Opdock that `library` ("torch", "python") is in this process in `version` ("2.13.0+cpu"),
 * for a caller that knows a version that Opdock cannot find out itself. Verdicts on plugins that
 * declare the library use it from the next scan on. OPDOCK_INVALID_ARGUMENT for a version that does
 * not begin with numbers. */
OPDOCK_EXPORT opdock_status opdock_note_library(const char* library, const char* version,
                                                char* error, uint32_t error_size);
/* [any thread]
 * Writes every reason behind the last OPDOCK_NOT_FOUND or OPDOCK_INCOMPATIBLE that this thread got
 * from opdock_get_function, opdock_prepare or a call, and forgets them: [{"step", "plugin", "path",
 * "code", "stage", "severity", "text", "found", "wanted", "advice"}]; [] if there are none. "text"
 * tells people what "found" and "wanted" tell programs. */
OPDOCK_EXPORT opdock_status opdock_take_reasons_json(char** out, char* error, uint32_t error_size);
/* [any thread]
 * Frees memory that a function of this header allocated. NULL is fine. */
OPDOCK_EXPORT void opdock_free(void* memory);

/* [any thread]
 * Reads or changes the user's consent to load plugins from `folder` (an absolute path) and what
 * really lies below it; consent is kept in the user's own configuration. action: "add"; "force",
 * which also adds "/" and folders that everybody may write, which "add" refuses; "remove"; "check",
 * which changes nothing and accepts a file too; or "list" (folder: NULL). *out: {"folder",
 * "consent" (it covers the folder now), "trusted" (plugins in it may be used, as far as their
 * location is concerned), "reasons"}, or {"file", "trusted" (paths), "reasons"} for "list". A link
 * is trusted if both its own location and its target's are. OPDOCK_INVALID_ARGUMENT for another
 * action, for a path that is not a folder, and for the removal of a folder that is not listed. */
OPDOCK_EXPORT opdock_status opdock_trust_json(const char* action, const char* folder, char** out,
                                              char* error, uint32_t error_size);
/* [any thread]
 * Adds a folder, as opdock_trust_json does with "add". */
OPDOCK_EXPORT opdock_status opdock_trust(const char* folder, char* error, uint32_t error_size);

/* ----------------------------------------------------------------------------------- functions */

/* [any thread]
 * Finds an op by name, or by "plugin/op" to require one plugin. Discovers and checks plugins if
 * that has not happened yet; loads none. OPDOCK_NOT_FOUND if nothing provides the op,
 * OPDOCK_INCOMPATIBLE if only unusable plugins do; the text has the main reasons,
 * opdock_explain_json all of them. The handle belongs to the runtime; a second request for the same
 * name returns the same handle. */
OPDOCK_EXPORT opdock_status opdock_get_function(opdock_runtime* runtime, const char* name,
                                                opdock_function** out, char* error,
                                                uint32_t error_size);

/* ------------------------------------------------------------------------------- what an op is */

/* These structs describe everything that an op declares, so that a bridge to a framework need not
 * parse the schema. All that they point at belongs to the function and does not change until the
 * runtime is destroyed. */

typedef struct opdock_param { /* one parameter of a schema; frozen */
  const char* name;
  uint32_t tag;            /* OPDOCK_TAG_TENSOR, …; of the elements for a list */
  uint32_t flags;          /* OPDOCK_PARAM_… */
  opdock_value fallback;   /* the default, if OPDOCK_PARAM_HAS_DEFAULT */
  const char* object_type; /* "aio_handle" of Object(aio_handle); NULL for other tags */
  uint32_t device;         /* where its tensors lie: OPDOCK_ON_OP_DEVICE, … */
  uint32_t reserved;
} opdock_param;
#define OPDOCK_PARAM_OPTIONAL 1u     /* None is accepted */
#define OPDOCK_PARAM_LIST 2u         /* a list of `tag` */
#define OPDOCK_PARAM_KEYWORD_ONLY 4u /* stands after the `*` */
#define OPDOCK_PARAM_HAS_DEFAULT 8u
#define OPDOCK_PARAM_WRITTEN 16u           /* Tensor(a!): the op writes into it */
#define OPDOCK_PARAM_OPTIONAL_ELEMENTS 32u /* Tensor?[]: elements may be None */

/* A node of an expression over arguments; frozen. `a`, `b` and `c` are indices of nodes of the same
 * rule. */
typedef struct opdock_expr {
  uint32_t kind;   /* OPDOCK_EXPR_… */
  int32_t param;   /* the parameter that it refers to, or -1 */
  int64_t integer; /* the value of a constant */
  int32_t a, b, c; /* operands, or -1 */
  int32_t element; /* for a list: the node with the index; -1: not a list */
} opdock_expr;
#define OPDOCK_EXPR_CONSTANT 0 /* integer */
#define OPDOCK_EXPR_INT 1      /* the int argument, or its element */
#define OPDOCK_EXPR_SIZE 2     /* the size of the tensor's dimension a; negative: from the end */
#define OPDOCK_EXPR_NDIM 3     /* the tensor's number of dimensions */
#define OPDOCK_EXPR_LENGTH 4   /* the list's number of elements */
#define OPDOCK_EXPR_INDEX 5    /* the index of the result list's element, from 0 */
#define OPDOCK_EXPR_ADD 6      /* a + b, and so on */
#define OPDOCK_EXPR_SUBTRACT 7
#define OPDOCK_EXPR_MULTIPLY 8
#define OPDOCK_EXPR_DIVIDE 9 /* rounds towards minus infinity */
#define OPDOCK_EXPR_NEGATE 10
#define OPDOCK_EXPR_MAX 11
#define OPDOCK_EXPR_MIN 12
#define OPDOCK_EXPR_CHOOSE 13 /* c ? a : b; c is a condition */
#define OPDOCK_EXPR_TRUE 14   /* a condition: the bool argument is True */
#define OPDOCK_EXPR_GIVEN 15  /* a condition: the argument is not None */
#define OPDOCK_EXPR_NOT 16    /* a condition: a is false */
/* A shape: that to which the tensor `param`, with its last dimension divided by `integer`, and the
 * shape `a` (-1: none) are broadcast. A tensor that is None does not count. */
#define OPDOCK_EXPR_BROADCAST 17
#define OPDOCK_EXPR_SIZE_OF 18 /* the size of the shape a's dimension b */

typedef struct opdock_dim { /* a dimension of a shape, or a run of dimensions; frozen */
  int32_t expr;    /* the node with its size, or with the shape of a run; -1: a tensor's run */
  int32_t param;   /* for a tensor's run: its parameter */
  int32_t element; /* for a run: the node with the index in a list, or -1 */
  int32_t reserved;
  int64_t from, to; /* a run's dimensions [from, to); negative: from the end; INT64_MAX: the end */
} opdock_dim;

typedef struct opdock_shape { /* a shape and dtype, as an expression; frozen */
  uint32_t num_dims;
  uint32_t reserved;
  const opdock_dim* dims;
  opdock_dtype dtype; /* bits 0: dtype_param gives it */
  /* The parameter that gives the dtype: a tensor (or an element of a list of tensors), or a
   * ScalarType. -1: the first tensor among the arguments. */
  int32_t dtype_param;
  int32_t dtype_element;
} opdock_shape;

typedef struct opdock_shape_rule { /* what a result with fresh tensors is; frozen */
  const char* text;                /* as the plugin wrote it */
  uint32_t num_exprs;
  int32_t condition; /* a node: true for `then`, false for `otherwise`; -1: `then` */
  const opdock_expr* exprs;
  opdock_shape then;
  opdock_shape otherwise;
  int32_t count;           /* for a Tensor[]: the node with its length; else -1 */
  uint32_t otherwise_none; /* 1: if the condition is false, there is no tensor */
} opdock_shape_rule;

typedef struct opdock_result { /* one result of a schema; frozen */
  uint32_t tag;                /* OPDOCK_TAG_TENSOR, _INT, _FLOAT, _BOOL or _OBJECT */
  uint32_t flags;              /* OPDOCK_PARAM_OPTIONAL, OPDOCK_PARAM_LIST */
  int32_t param;               /* the parameter that is returned, or -1: it is fresh */
  uint32_t reserved;
  const char* object_type;             /* as of a parameter */
  const opdock_shape_rule* shape_rule; /* for fresh tensors, else NULL */
} opdock_result;

typedef struct opdock_gradient_arg { /* what a gradient's op gets for a parameter; frozen */
  uint32_t kind;                     /* OPDOCK_GRADIENT_… */
  uint32_t index;                    /* of the parameter, result or incoming gradient */
  opdock_value constant;
} opdock_gradient_arg;
#define OPDOCK_GRADIENT_PARAM 0  /* an argument of the op */
#define OPDOCK_GRADIENT_RESULT 1 /* a result of the op */
#define OPDOCK_GRADIENT_INCOMING                                       \
  2 /* the gradient of a result; where there is none and the parameter \
       is no Tensor?, zeros */
#define OPDOCK_GRADIENT_CONSTANT 3

typedef struct opdock_gradient { /* gradient of one or several parameters; frozen */
  uint32_t num_params;
  uint32_t num_args;
  const uint32_t* params;          /* their indices */
  const uint32_t* results;         /* for each of params, the result of `op` that is its gradient */
  const char* op;                  /* an op of the same plugin; NULL: there is no gradient */
  const char* why;                 /* why there is no gradient */
  const opdock_gradient_arg* args; /* one for each of the op's parameters */
} opdock_gradient;

typedef struct opdock_device_support { /* frozen */
  int32_t type;                        /* OPDOCK_CPU, … */
  uint32_t num_dtypes;                 /* dtypes of the device_arg tensor there; 0: any */
  const opdock_dtype* dtypes;
} opdock_device_support;

typedef struct opdock_function_info {
  uint32_t struct_size;
  uint32_t flags;   /* OPDOCK_OP_… of the first plugin; MAY_BLOCK, HOST_SYNC, RANDOM and RETAINS if
                       any plugin that may serve has them */
  const char* name; /* "softmax" */
  const char* schema; /* "softmax(Tensor x, …) -> Tensor" */
  uint32_t num_params;
  uint32_t num_results;
  const opdock_param* params;
  const opdock_result* results;
  uint32_t device_arg; /* the parameter whose device decides where the op runs */
  uint32_t num_devices;
  const opdock_device_support* devices; /* that some plugin supports, present here or not */
  const opdock_gradient* gradients;     /* none if the op does not declare any */
  uint32_t num_gradients;
  uint32_t reserved;
} opdock_function_info;

/* [any thread]
 * Returns what is declared for the function by its schema and by the first plugin that provides it.
 * Loads nothing. */
OPDOCK_EXPORT const opdock_function_info* opdock_describe(const opdock_function* function);
/* [any thread]
 * Returns the op's documentation. Because it is in the plugin's code, this loads the plugin;
 * returns "" if that fails. Valid as long as the function. */
OPDOCK_EXPORT const char* opdock_function_doc(const opdock_function* function);

/* [any thread]
 * Computes how many fresh tensors each result has for these arguments (all parameters, in the
 * schema's order) by the shape rules, without a plugin. counts: has room for one number for each
 * result; 0 for a result that is not a fresh tensor. */
OPDOCK_EXPORT opdock_status opdock_count_results(const opdock_function* function,
                                                 const opdock_value* args, uint32_t num_args,
                                                 uint32_t* counts, char* error,
                                                 uint32_t error_size);
/* [any thread]
 * Computes the fresh tensors of all results, one after the other, in the form of
 * opdock_plan.outputs. room: capacity of `outputs`, at least the sum of the numbers from
 * opdock_count_results. */
OPDOCK_EXPORT opdock_status opdock_infer_results(const opdock_function* function,
                                                 const opdock_value* args, uint32_t num_args,
                                                 opdock_output* outputs, uint32_t room, char* error,
                                                 uint32_t error_size);

/* --------------------------------------------------------------------------------------- calls */

/* [any thread, not while capturing]
 * Loads the plugins for the function, makes all their kernels ready on `device` (compiling several
 * at once, if they have to be compiled) and prepares the op, so that the next call there loads and
 * compiles nothing and may lie inside a graph capture. Without opdock_prepare, a call makes ready
 * the kernels that it launches. A kernel that does not compile is an error; the others are ready
 * nevertheless. */
OPDOCK_EXPORT opdock_status opdock_prepare(opdock_function* function, opdock_device device,
                                           char* error, uint32_t error_size);

/* How a program lets ops keep arguments (opdock.retain/1). */
typedef struct opdock_keeper {
  uint32_t struct_size;
  uint32_t reserved;
  void* context;
  /* [calling thread]
   * Called while the call runs. Keeps the memory of `tensor`, an argument of the call, until
   * `release` is called with *out, whose value the program chooses. Any status but OPDOCK_OK means
   * that the memory cannot be kept. */
  opdock_status (*retain)(void* context, const opdock_tensor* tensor, void** out);
  /* [any thread]
   * Called at any time afterwards. Must not block. */
  void (*release)(void* kept);
} opdock_keeper;

typedef struct opdock_call_options {
  uint32_t struct_size;
  uint32_t flags; /* 0 */
  void* stream;   /* CUstream or hipStream_t; NULL is the default stream */
  /* The source of random numbers, for ops with OPDOCK_OP_RANDOM; its offset is advanced. NULL: a
   * Generator among the arguments or, without one, the runtime's own generator of the device. */
  opdock_generator* generator;
  /* The caller's memory, of the planned size. The host uses its own memory if this is NULL, and if
   * the plugin that planned cannot make the call and another plugin does. */
  void* workspace;
  uint64_t workspace_bytes;
  const opdock_keeper* keeper; /* NULL: ops may keep nothing */
  /* [calling thread]
   * Returns nonzero if products of float32 may round their factors to TF32. It is called at most
   * once while a call is planned and once while it runs, and only by a product of float32 on an
   * NVIDIA GPU; a program that always allows TF32 returns 1. NULL: rounding is not allowed. */
  int32_t (*allows_tf32)(void);
  /* [calling thread]
   * Returns nonzero if equal calls have to give equal bits, also of ops that are not
   * OPDOCK_OP_DETERMINISTIC because this takes them longer. It is called at most once while a call
   * is planned and once while it runs, and only by attention on an NVIDIA GPU. NULL: they need
   * not. */
  int32_t (*wants_deterministic)(void);
} opdock_call_options;

/* [any thread]
 * Seeds the runtime's own generators, one for each device, from which an op draws that is given no
 * other generator. Each begins at offset 0. Without this call their first seed comes from the
 * system's entropy. */
OPDOCK_EXPORT opdock_status opdock_manual_seed(opdock_runtime* runtime, uint64_t seed, char* error,
                                               uint32_t error_size);

/* [any thread]
 * Plans one call: checks the arguments (all parameters in the schema's order, see opdock_bind) and
 * fills in `plan`, whose `outputs` has room for `room` fresh tensors; if it needs more, num_outputs
 * says how many, and the status is OPDOCK_INVALID_ARGUMENT. Touches no device. opdock_run_planned
 * checks whether memory is shared. options may be NULL. */
OPDOCK_EXPORT opdock_status opdock_plan_call(opdock_function* function,
                                             const opdock_call_options* options,
                                             const opdock_value* args, uint32_t num_args,
                                             opdock_plan* plan, char* error, uint32_t error_size);

/* [any thread]
 * Runs a call that opdock_plan_call has planned, for the same function, arguments and options.
 * results: one for each result of the schema. On entry, results with fresh tensors hold these, with
 * the planned dtype, shape and device: a tensor, OPDOCK_TAG_NONE for a Tensor? that was not
 * planned, or a list of as many tensors as were planned. The other results are filled in. A call
 * that was planned without data (OPDOCK_VALUE_NO_DATA) is first planned again with the data.
 * Enqueues GPU work on the stream and returns; CPU ops have finished then. */
OPDOCK_EXPORT opdock_status opdock_run_planned(opdock_function* function,
                                               const opdock_call_options* options,
                                               const opdock_plan* plan, const opdock_value* args,
                                               uint32_t num_args, opdock_value* results,
                                               uint32_t num_results, char* error,
                                               uint32_t error_size);

/* [any thread]
 * Plans, checks and runs one call. A result with fresh tensors that is OPDOCK_TAG_NONE on entry is
 * allocated by the host and gets OPDOCK_VALUE_OWNED, as does an object: free them with
 * opdock_value_free. GPU memory is freed in the order of options->stream, which must still exist
 * then. If the call fails, the results are unchanged. */
OPDOCK_EXPORT opdock_status opdock_invoke(opdock_function* function,
                                          const opdock_call_options* options,
                                          const opdock_value* args, uint32_t num_args,
                                          opdock_value* results, uint32_t num_results, char* error,
                                          uint32_t error_size);
/* [any thread]
 * Frees what a result with OPDOCK_VALUE_OWNED holds: a list and its tensors, a tensor, or one
 * reference to an object, and makes it OPDOCK_TAG_NONE. Other values are left as they are; NULL is
 * fine. */
OPDOCK_EXPORT void opdock_value_free(opdock_value* value);

/* [any thread]
 * Puts positional and named arguments into the schema's order and fills in defaults. `bound` has
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
