// A wheel, read in place: its native members can be opened as if the wheel were a folder.
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

// What was not looked at, and why.
struct Skipped {
  std::string path;
  Reason reason;
};

// One member that may be native code.
struct WheelMember {
  // "/d/foo.whl/foo/x.so", also of foo-1.0.data/platlib/foo/x.so; what goes beside site-packages is
  // called as in the wheel: "/d/foo.whl/foo-1.0.data/scripts/x".
  std::string path;
  std::string name;  // as in the wheel: "foo/x.so"
};

// "foo-1.2-cp311-cp311-manylinux_2_28_x86_64.whl" taken apart; of another name all but the
// distribution are empty.
struct WheelName {
  std::string distribution, version, python, abi, platform;
};
WheelName parse_wheel_name(const std::string& file_name);

// Members are where an installer would put them: the wheel's folder is site-packages, in which
// those below NAME.data/platlib and purelib lie beside the others; NAME.data/data is the
// environment's own folder, three levels up, and NAME.data/scripts its bin. A path below the
// wheel's is never looked for in the file system, and one that leaves the environment by ".." is
// not there. All other paths are the file system's. Thread-safe.
class Wheel : public Files {
 public:
  // path: absolute and plain. NULL and one more reason in *reasons if it cannot be read at all.
  // What is wrong with single members is in skipped().
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
  // In the order of their paths: what has the name of a library, and ELF files without extension.
  const std::vector<WheelMember>& members() const { return members_; }
  // Python's.
  const std::vector<WheelMember>& sources() const { return sources_; }
  const std::vector<Skipped>& skipped() const { return skipped_; }

 private:
  Wheel(std::string path, OpenFile file, Zip zip)
      : path_(std::move(path)), file_(std::move(file)), zip_(zip) {}
  void list(std::vector<Reason>* reasons);
  void keep(ZipEntry entry);
  void skip(const std::string& name, Reason reason);
  void check_overlaps();
  // WheelMember::path of what is installed at `place`.
  std::string path_below(const std::string& place, const std::string& name) const;
  // The member that a path below path_ + "/" means; NULL: there is none.
  const ZipEntry* find(const std::string& path) const;
  std::optional<Fd> unpacked(const ZipEntry& entry, std::string* problem) const;
  FileIdentity identity_of(const ZipEntry& entry) const;

  std::string path_;
  OpenFile file_;
  Zip zip_;
  WheelName name_;
  std::string metadata_;
  std::map<std::string, ZipEntry> entries_;  // by installed_place()
  std::map<std::string, ZipEntry> texts_;    // Python's sources, likewise
  std::vector<WheelMember> members_, sources_;
  std::vector<Skipped> skipped_;
  // Large members that were unpacked, by their place in the directory: others of the wheel need the
  // same ones again.
  struct Unpacked {
    std::mutex turn;
    Fd fd;
  };
  mutable std::mutex mutex_;
  mutable std::map<uint64_t, std::shared_ptr<Unpacked>> unpacked_;
  mutable uint64_t kept_bytes_ = 0;  // of them
  uint64_t not_told_ = 0;            // members with something wrong beyond those in skipped_
};

// What has the file at `path` (absolute, plain): the wheel in it, for "/d/foo.whl/foo/x.so", else
// the file system. A wheel that cannot be read is the file system too, where nothing is below it.
std::shared_ptr<const Files> files_at(const std::string& path);

}  // namespace opdock
