// The function of opdock.h that puts a plugin into the user's own folder.
// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <vector>

#include "base/files.h"
#include "chain/report.h"
#include "chain/runtime.h"
#include "fmt/format.h"
#include "opdock/types.hpp"

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

// The version that lies at `target`; empty: nothing does. Throws for what must not be replaced.
std::string version_there(opdock_runtime* runtime, const std::string& target,
                          const std::string& name) {
  struct stat status{};
  if (lstat(target.c_str(), &status) != 0) return {};
  const std::shared_ptr<const Candidate> there =
      examine(target, *runtime->machine(), Depth::kJudge);
  const std::optional<Note>& note = there->file.note;
  if (!note || note->name != name) {
    throw Error(OPDOCK_INVALID_ARGUMENT,
                fmt::format("found {}, which {}, in the place of plugin {}; move it away first",
                            target, note ? "holds plugin " + note->name : "holds no plugin", name));
  }
  return note->version.text();
}

Report install(opdock_runtime* runtime, const std::string& path) {
  const SearchEnvironment& environment = runtime->search().environment;
  if (environment.secure) {
    throw Error(OPDOCK_INVALID_ARGUMENT,
                "found a program with raised privileges, wanted a user's program, which has a home "
                "to install into; run `opdock install` as the user");
  }
  if (environment.data_home.empty()) {
    throw Error(OPDOCK_INVALID_ARGUMENT,
                "found no home folder to install into, wanted one; set HOME or XDG_DATA_HOME");
  }
  const std::string folder = environment.data_home + "/opdock/plugins";
  if (const int error = make_folders(folder); error != 0) {
    throw system_error("make", folder, error);
  }
  // What is checked is the copy, where it is going to lie: libraries are found relative to it.
  const TemporaryFile copied(folder + "/." + unique_name());
  copy(path, copied.path());
  const std::shared_ptr<const Candidate> examined =
      examine(copied.path(), *runtime->machine(), Depth::kInspect);
  Report json = summary(*examined);
  json["path"] = nullptr;
  json["replaced"] = nullptr;
  json["found"] = false;
  if (examined->verdict.state == State::kRejected) return json;
  const std::string& name = examined->file.note->name;
  const std::string target = folder + "/" + name + ".so";
  const std::string before = version_there(runtime, target, name);
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

}  // namespace
}  // namespace opdock

opdock_status opdock_install_json(opdock_runtime* runtime, const char* path, char** out,
                                  char* error, uint32_t error_size) {
  return opdock::report(
      [&] {
        opdock::need(runtime, "runtime");
        opdock::need(path, "path", "a file");
        return opdock::install(runtime, path);
      },
      out, {error, error_size});
}
