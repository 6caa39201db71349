// SPDX-License-Identifier: Apache-2.0
#include "link/process.h"

#include <dlfcn.h>
#include <link.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <filesystem>
#include <set>

#include "base/loaded_objects.h"

namespace opdock {
namespace {

// Returns the soname of a loaded object, or NULL. Depending on its version, the loader has
// relocated some addresses in the dynamic section and left others as offsets; an offset is less
// than the load address.
const char* soname_of(const dl_phdr_info& object) {
  const char* strings = nullptr;
  uint64_t soname = 0;
  for (int i = 0; i < object.dlpi_phnum; ++i) {
    if (object.dlpi_phdr[i].p_type != PT_DYNAMIC) continue;
    const auto* entry =
        reinterpret_cast<const ElfW(Dyn)*>(object.dlpi_addr + object.dlpi_phdr[i].p_vaddr);
    for (; entry->d_tag != DT_NULL; ++entry) {
      const ElfW(Addr) value = entry->d_un.d_ptr;
      if (entry->d_tag == DT_STRTAB) {
        strings = reinterpret_cast<const char*>(value < object.dlpi_addr ? object.dlpi_addr + value
                                                                         : value);
      } else if (entry->d_tag == DT_SONAME) {
        soname = value;
      }
    }
  }
  return strings == nullptr || soname == 0 ? nullptr : strings + soname;
}

struct Visit {
  std::vector<LoadedLibrary> libraries;
  uintptr_t tls_begin = UINTPTR_MAX, tls_end = 0;  // TLS of this thread in the static block
  size_t tls_block = 0;                            // the static block's size
};

uintptr_t thread_pointer() {
  return reinterpret_cast<uintptr_t>(__builtin_thread_pointer());
}

int visit_object(dl_phdr_info* object, size_t, void* context) {
  Visit* const visit = static_cast<Visit*>(context);
  const auto tls = reinterpret_cast<uintptr_t>(object->dlpi_tls_data);
  const uintptr_t pointer = thread_pointer();
  if (tls != 0 && tls + visit->tls_block > pointer && tls < pointer + visit->tls_block) {
    for (int i = 0; i < object->dlpi_phnum; ++i) {
      if (object->dlpi_phdr[i].p_type != PT_TLS) continue;
      visit->tls_begin = std::min(visit->tls_begin, tls);
      visit->tls_end = std::max(visit->tls_end, tls + object->dlpi_phdr[i].p_memsz);
    }
  }
  const std::string path = object->dlpi_name == nullptr ? "" : object->dlpi_name;
  if (path.empty()) return 0;  // the program: no library needs it by name
  LoadedLibrary library{{path}, path, false, false};
  if (const char* soname = soname_of(*object)) library.names.emplace_back(soname);
  if (path.find('/') == std::string::npos) library.path.clear();  // the vDSO, which is in no file
  visit->libraries.push_back(std::move(library));
  return 0;
}

// Returns the size and the alignment of the static TLS block from a private function of the loader,
// which sanitizers use too.
bool static_tls_block(size_t* size, size_t* align) {
  using Get = void(size_t*, size_t*);
  const auto get = reinterpret_cast<Get*>(::dlsym(RTLD_DEFAULT, "_dl_get_tls_static_info"));
  if (get == nullptr) return false;
  get(size, align);
  return true;
}

std::optional<int64_t> tls_left(const Visit& visit) {
  if (visit.tls_block == 0 || visit.tls_end == 0) return std::nullopt;
#if defined(__x86_64__)
  // The TLS blocks are below the thread pointer, the thread's descriptor is above it.
  const auto* descriptor =
      static_cast<const uint32_t*>(::dlsym(RTLD_DEFAULT, "_thread_db_sizeof_pthread"));
  if (descriptor == nullptr) return std::nullopt;
  return static_cast<int64_t>(visit.tls_block) - *descriptor -
         static_cast<int64_t>(thread_pointer() - visit.tls_begin);
#else
  return static_cast<int64_t>(visit.tls_block) -
         static_cast<int64_t>(visit.tls_end - thread_pointer());
#endif
}

void add_tls(const Visit& visit, size_t align, ProcessModel* process) {
  process->tls_left = tls_left(visit);
  if (align != 0) process->tls_align = align;
}

// Adds the libraries that a process begins with: `needed` and everything that those need.
void start_with(const std::vector<std::string>& needed, const Needer& program,
                ProcessModel* process) {
  static const Files& files = *new Files;
  LibrarySearch search(process->places, &files);
  // The vDSO, which is in no file.
  process->loaded.push_back({{"linux-vdso.so.1"}, {}, false, false});
  std::deque<Needer> needers = {program};
  std::vector<std::pair<std::string, const Needer*>> queue;
  for (const std::string& name : needed) queue.emplace_back(name, &needers.front());
  std::set<std::string> seen;
  for (size_t i = 0; i < queue.size(); ++i) {
    const auto [name, needer] = queue[i];
    if (!seen.insert(name).second) continue;
    const std::optional<FoundLibrary> found = search.find(name, *needer);
    if (!found) continue;
    const Dynamic& dynamic = found->library->dynamic;
    LoadedLibrary library{{name, found->path}, found->path, true, false};
    if (!dynamic.soname.empty()) library.names.push_back(dynamic.soname);
    process->loaded.push_back(std::move(library));
    needers.emplace_back(found->path, dynamic, needer);
    for (const std::string& next : dynamic.needed) queue.emplace_back(next, &needers.back());
  }
}

ProcessModel model_here(int cpu_level, std::vector<LoadedLibrary>* loaded) {
  ProcessModel process;
  process.places = places_here(cpu_level);
  Visit visit;
  size_t align = 0;
  static_tls_block(&visit.tls_block, &align);
  visit_loaded_objects(visit_object, &visit);
  add_tls(visit, align, &process);
  *loaded = std::move(visit.libraries);
  return process;
}

}  // namespace

ProcessModel this_process(int cpu_level) {
  std::vector<LoadedLibrary> loaded;
  ProcessModel process = model_here(cpu_level, &loaded);
  process.loaded = std::move(loaded);
  process.is_this_process = true;
  return process;
}

ProcessModel fresh_process(int cpu_level) {
  std::vector<LoadedLibrary> ignored;
  ProcessModel process = model_here(cpu_level, &ignored);
  process.places.program = {};
  start_with({"libc.so.6"}, {}, &process);
  return process;
}

void assume_library(const std::string& name, ProcessModel* process) {
  process->loaded.push_back({{name}, {}, false, true});
}

ProcessModel described_process(uint16_t machine, int cpu_level,
                               std::map<std::string, Version> versions) {
  ProcessModel process;
  process.is_described = true;
  process.assumed_versions = std::move(versions);
  process.places.machine = machine;
  process.places.cpu_level = machine == EM_X86_64 ? cpu_level : 0;
  process.places.lib_token = "lib64";
  process.places.platform_token = machine == EM_X86_64 ? "x86_64" : "aarch64";
  for (const char* name : {"libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1",
                           "libutil.so.1", "libresolv.so.2", "libmvec.so.1", "libanl.so.1",
                           "libcrypt.so.1", "libnsl.so.1", "libgcc_s.so.1", "libstdc++.so.6"}) {
    assume_library(name, &process);
  }
  assume_library(machine == EM_X86_64 ? "ld-linux-x86-64.so.2" : "ld-linux-aarch64.so.1", &process);
  return process;
}

std::optional<ProcessModel> started_program(const std::string& path, int cpu_level) {
  const std::shared_ptr<const Library> program = LibraryPool::shared().get(path, Files());
  if (program == nullptr || program->machine != kThisMachine) return std::nullopt;
  std::vector<LoadedLibrary> ignored;
  ProcessModel process = model_here(cpu_level, &ignored);
  // $ORIGIN is the folder of the program itself, not of a link to it.
  std::error_code failed;
  const std::filesystem::path real = std::filesystem::canonical(path, failed);
  const Needer needer(failed ? path : real.string(), program->dynamic, nullptr);
  process.places.program = needer;
  process.program = path;
  process.loaded.push_back({{}, path, true, false});
  start_with(program->dynamic.needed, needer, &process);
  return process;
}

}  // namespace opdock
