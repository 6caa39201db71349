// Reads a wheel in place: its native members can be opened as if the wheel were a folder.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/reason.h"
#include "inspect/zip.h"
#include "link/files.h"

namespace opdock {

// A file or folder that was not inspected, and why.
struct Skipped {
  std::string path;
  Reason reason;
};

// One member that may be native code.
struct WheelMember {
  // "/d/foo.whl/foo/x.so", also for foo-1.0.data/platlib/foo/x.so. A member that is installed
  // outside site-packages has its name in the wheel: "/d/foo.whl/foo-1.0.data/scripts/x".
  std::string path;
  std::string name;  // its name in the wheel: "foo/x.so"
};

// The parts of "foo-1.2-cp311-cp311-manylinux_2_28_x86_64.whl"; for a name of another form all but
// the distribution are empty.
struct WheelName {
  std::string distribution, version, python, abi, platform;
};
WheelName parse_wheel_name(const std::string& file_name);

// Members are where an installer would put them: the wheel's path stands for site-packages, in
// which the members below NAME.data/platlib and purelib lie next to the others; NAME.data/data is
// the environment's own folder, three levels up, and NAME.data/scripts its bin. A path below the
// wheel's is never looked up in the file system, and one that leaves the environment by ".." does
// not exist. All other paths are the file system's. Thread-safe.
class Wheel : public Files {
 public:
  // path: absolute and plain. Returns NULL and adds a reason if the wheel cannot be read at all.
  // Problems with single members are in skipped().
  static std::shared_ptr<const Wheel> read(const std::string& path, std::vector<Reason>* reasons);

  using Files::open;
  std::optional<OpenFile> open(const std::string& path,
                               std::vector<Reason>* reasons) const override;
  std::optional<FileIdentity> identify(const std::string& path) const override;
  bool is_folder(const std::string& path) const override;
  std::string other_kind(const std::string& path) const override;

  const std::string& path() const { return path_; }
  const WheelName& name() const { return name_; }
  // METADATA of the wheel's *.dist-info; empty if it has none.
  const std::string& metadata() const { return metadata_; }
  // In the order of their paths: members with the name of a library, and ELF files of other names.
  const std::vector<WheelMember>& members() const { return members_; }
  // The Python sources.
  const std::vector<WheelMember>& sources() const { return sources_; }
  const std::vector<Skipped>& skipped() const { return skipped_; }

 private:
  Wheel(std::string path, OpenFile file, Zip zip)
      : path_(std::move(path)), file_(std::move(file)), zip_(zip) {}
  void list(std::vector<Reason>* reasons);
  void keep(ZipEntry entry);
  void skip(const std::string& name, Reason reason);
  void check_overlaps();
  // Returns the WheelMember::path of what is installed at `place`.
  std::string path_below(const std::string& place, const std::string& name) const;
  // Returns the member that a path below path_ + "/" means; NULL: there is none.
  const ZipEntry* find(const std::string& path) const;
  std::optional<Fd> unpacked(const ZipEntry& entry, std::string* problem) const;
  FileIdentity identity_of(const ZipEntry& entry) const;

  std::string path_;
  OpenFile file_;
  Zip zip_;
  WheelName name_;
  std::string metadata_;
  std::map<std::string, ZipEntry> entries_;  // keyed by installed_place()
  std::map<std::string, ZipEntry> texts_;    // Python sources, keyed in the same way
  std::vector<WheelMember> members_, sources_;
  std::vector<Skipped> skipped_;
  // Large members that were unpacked, by their position in the directory. They are kept because
  // other files of the wheel need the same ones again.
  struct Unpacked {
    std::mutex mutex;
    Fd fd;
  };
  mutable std::mutex mutex_;
  mutable std::map<uint64_t, std::shared_ptr<Unpacked>> unpacked_;
  mutable uint64_t kept_bytes_ = 0;  // the size of the kept members
  uint64_t not_told_ = 0;            // members with a problem, beyond those in skipped_
};

// Returns the files in which `path` (absolute, plain) is: the wheel in it, for
// "/d/foo.whl/foo/x.so", else the file system. For a wheel that cannot be read it is also the file
// system, in which nothing is below the wheel.
std::shared_ptr<const Files> files_at(const std::string& path);

}  // namespace opdock
