// The functions of opdock.h that install a plugin into the user's own folder, and remove it.
// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <vector>

#include "base/files.h"
#include "chain/runtime.h"
#include "fmt/format.h"
#include "opdock/types.hpp"
#include "report/plugins.h"
#include "report/report.h"

namespace opdock {
namespace {

Error system_error(const char* what, const std::string& path, int error) {
  return {OPDOCK_INTERNAL,
          fmt::format("cannot {} {}: {}; check its folder's rights and the space on its disk", what,
                      path, error_text(error))};
}

// Removes the file unless it was renamed.
class TemporaryFile {
 public:
  explicit TemporaryFile(std::string path) : path_(std::move(path)) {}
  ~TemporaryFile() { unlink(path_.c_str()); }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

void copy(const std::string& from, const std::string& to) {
  const std::string real = real_path(from);  // open_file() follows no links
  Fd in, out;
  if (const int error = open_file(real.empty() ? from : real, O_RDONLY, 0, &in); error != 0) {
    throw Error(OPDOCK_INVALID_ARGUMENT,
                fmt::format("{}: {}; correct the path", from, error_text(error)));
  }
  struct stat status{};
  if (fstat(in.get(), &status) != 0 || !S_ISREG(status.st_mode)) {
    throw Error(
        OPDOCK_INVALID_ARGUMENT,
        fmt::format("found {}, which is no regular file, wanted a shared object; correct the path",
                    from));
  }
  if (const int error = open_file(to, O_WRONLY | O_CREAT | O_EXCL, 0644, &out); error != 0) {
    throw system_error("make", to, error);
  }
  std::vector<char> buffer(1 << 20);
  for (;;) {
    const ssize_t size = read(in.get(), buffer.data(), buffer.size());
    if (size < 0 && errno == EINTR) continue;
    if (size < 0) throw system_error("read", from, errno);
    if (size == 0) break;
    const int error = write_all(out.get(), {buffer.data(), static_cast<size_t>(size)});
    if (error != 0) throw system_error("write", to, error);
  }
  if (const int error = sync_file(out.get()); error != 0) {
    throw system_error("write", to, error);
  }
}

struct Options {
  std::string folder;
  bool force = false;
};

Options read_options(const char* text) {
  Options options;
  if (text == nullptr || *text == '\0') return options;
  const Report json = Report::parse(text, nullptr, false);
  if (!json.is_object()) {
    throw Error(OPDOCK_INVALID_ARGUMENT,
                "options: found no JSON object, wanted one such as {\"force\": true}");
  }
  for (const auto& [name, value] : json.items()) {
    if (name == "folder" && value.is_string()) {
      options.folder = value.get<std::string>();
    } else if (name == "force" && value.is_boolean()) {
      options.force = value.get<bool>();
    } else {
      throw Error(OPDOCK_INVALID_ARGUMENT,
                  fmt::format("options: found \"{}\": {}, wanted folder (a text) or force (true or "
                              "false)",
                              name, value.dump()));
    }
  }
  return options;
}

// The user's own plugin folder.
std::string own_folder_of(const SearchEnvironment& environment, const char* command) {
  if (environment.secure) {
    throw Error(
        OPDOCK_INVALID_ARGUMENT,
        fmt::format("found a program with raised privileges, wanted a user's program, which "
                    "has a home with plugins; run `opdock {}` as the user",
                    command));
  }
  if (environment.data_home.empty()) {
    throw Error(OPDOCK_INVALID_ARGUMENT,
                "found no home folder for plugins, wanted one; set HOME or XDG_DATA_HOME");
  }
  return environment.data_home + "/opdock/plugins";
}

std::string absolute_path(const std::string& path) {
  std::error_code error;
  return std::filesystem::absolute(path, error).lexically_normal().string();
}

bool is_there(const std::string& path) {
  struct stat status{};
  return lstat(path.c_str(), &status) == 0;
}

// Returns the version of the plugin at `target`, or an empty text if there is no file. If the file
// is not this plugin, throws an error with `advice` or, if that is NULL, returns an empty text.
std::string version_there(opdock_runtime* runtime, const std::string& target,
                          const std::string& name, const char* advice) {
  if (!is_there(target)) return {};
  const std::shared_ptr<const Candidate> there =
      examine(target, *runtime->machine(), Depth::kJudge);
  const std::optional<Note>& note = there->file.note;
  if (!note || note->name != name) {
    if (advice == nullptr) return {};
    throw Error(OPDOCK_INVALID_ARGUMENT,
                fmt::format("found {}, which {}, in the place of plugin {}; {}", target,
                            note ? "holds plugin " + note->name : "holds no plugin", name, advice));
  }
  return note->version.text();
}

Report install(opdock_runtime* runtime, const std::string& path, const Options& options) {
  const SearchEnvironment& environment = runtime->search().environment;
  const std::string folder = options.folder.empty() ? own_folder_of(environment, "install")
                                                    : absolute_path(options.folder);
  if (const int error = make_folders(folder); error != 0) {
    throw system_error("make", folder, error);
  }
  // Check the copy in its final folder, because libraries are found relative to the file.
  const TemporaryFile copied(folder + "/." + unique_name());
  copy(path, copied.path());
  const std::shared_ptr<const Candidate> examined =
      examine(copied.path(), *runtime->machine(), Depth::kInspect);
  Report json = summary(*examined);
  json["path"] = nullptr;
  json["replaced"] = nullptr;
  json["found"] = false;
  const bool is_rejected = examined->verdict.state == State::kRejected;
  if (!examined->file.note || (is_rejected && !options.force)) return json;
  const std::string& name = examined->file.note->name;
  const std::string target = folder + "/" + name + ".so";
  const char* const advice = options.force ? nullptr : "move it away first, or use --force";
  const std::string before = version_there(runtime, target, name, advice);
  if (rename(copied.path().c_str(), target.c_str()) != 0) {
    throw system_error("put a plugin in the place of", target, errno);
  }
  sync_folder(folder);
  const std::shared_ptr<const Catalog> catalog = runtime->catalog(true);
  for (const std::shared_ptr<const Candidate>& found : catalog->candidates()) {
    if (found->path != target) continue;
    json = summary(*found);
    json["found"] = true;
  }
  json["path"] = target;
  json["replaced"] = before.empty() ? Report(nullptr) : Report(before);
  return json;
}

Report uninstall(opdock_runtime* runtime, const std::string& name) {
  const std::string folder = own_folder_of(runtime->search().environment, "uninstall");
  const std::string target = folder + "/" + name + ".so";
  if (name.find('/') != name.npos || !is_there(target)) {
    throw Error(
        OPDOCK_NOT_FOUND,
        fmt::format("found no plugin \"{}\" in {}, wanted one that `opdock install` has put "
                    "there; `opdock list --details {}` shows where it is",
                    name, folder, name));
  }
  Report json;
  json["name"] = name;
  json["version"] = version_there(runtime, target, name, "remove it yourself if it is yours");
  json["path"] = target;
  if (unlink(target.c_str()) != 0) throw system_error("remove", target, errno);
  sync_folder(folder);
  json["path_left"] = nullptr;
  const std::shared_ptr<const Catalog> catalog = runtime->catalog(true);
  for (const std::shared_ptr<const Candidate>& found : catalog->candidates()) {
    if (found->file.note && found->file.note->name == name && json["path_left"].is_null())
      json["path_left"] = found->path;
  }
  return json;
}

}  // namespace
}  // namespace opdock

opdock_status opdock_uninstall_json(opdock_runtime* runtime, const char* name, char** out,
                                    char* error, uint32_t error_size) {
  return opdock::report(
      [&] {
        opdock::need(runtime, "runtime");
        opdock::need(name, "name", "a plugin's");
        return opdock::uninstall(runtime, name);
      },
      out, {error, error_size});
}

opdock_status opdock_install_json(opdock_runtime* runtime, const char* path, const char* options,
                                  char** out, char* error, uint32_t error_size) {
  return opdock::report(
      [&] {
        opdock::need(runtime, "runtime");
        opdock::need(path, "path", "a file");
        return opdock::install(runtime, path, opdock::read_options(options));
      },
      out, {error, error_size});
}
