// SPDX-License-Identifier: Apache-2.0
#include "manifest/manifest.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <set>
#include <string_view>

#include "base/version.h"
#include "call/dtype.h"
#include "manifest/toml_table.h"
#include "opdock/plugin.h"

namespace opdock {

static const std::vector<std::string> kDevices = {"cpu", "cuda", "rocm"};

static const std::vector<std::pair<std::string, uint32_t>> kFlags = {
    {"thread-safe", OPDOCK_OP_THREAD_SAFE}, {"capture-safe", OPDOCK_OP_CAPTURE_SAFE},
    {"in-place", OPDOCK_OP_IN_PLACE},       {"deterministic", OPDOCK_OP_DETERMINISTIC},
    {"may-block", OPDOCK_OP_MAY_BLOCK},     {"may-allocate", OPDOCK_OP_MAY_ALLOCATE},
    {"host-sync", OPDOCK_OP_HOST_SYNC}};

static const std::vector<std::string> kLibraries = {"torch", "cudart", "python", "rocm"};

std::optional<std::string> read_file(const std::filesystem::path& path) {
  std::error_code failed;
  if (!std::filesystem::is_regular_file(path, failed)) return std::nullopt;
  std::ifstream stream(path, std::ios::binary);
  if (!stream) return std::nullopt;
  std::string text((std::istreambuf_iterator<char>(stream)), std::istreambuf_iterator<char>());
  if (stream.bad()) return std::nullopt;
  return text;
}

// Identifiers become parts of file and symbol names.
static bool is_identifier(std::string_view text) {
  if (text.empty() || text.size() > 64) return false;
  for (char c : text)
    if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_'))
      return false;
  return text[0] < '0' || text[0] > '9';
}

static void check_words(TomlTable* table, std::string_view key,
                        const std::vector<std::string>& words,
                        const std::vector<std::string>& known) {
  std::set<std::string> seen;
  for (const std::string& word : words) {
    if (std::find(known.begin(), known.end(), word) == known.end()) {
      std::string guess = nearest(word, known);
      table->error(table->line(key),
                   fmt::format("\"{}\": found \"{}\", wanted one of: {}{}", key, word, join(known),
                               guess.empty() ? "" : fmt::format(" (did you mean \"{}\"?)", guess)));
    } else if (!seen.insert(word).second) {
      table->error(table->line(key),
                   fmt::format("\"{}\": found \"{}\" twice, wanted it once", key, word));
    }
  }
}

// Paths stay inside the plugin's folder: it is copied as a whole when it is built on demand.
static void check_files(TomlTable* table, std::string_view key, const Manifest& manifest,
                        const std::vector<std::string>& files) {
  for (const std::string& file : files) {
    std::filesystem::path path(file);
    bool leaves = path.is_absolute() || path.lexically_normal().string().starts_with("..");
    if (leaves)
      table->error(
          table->line(key),
          fmt::format("\"{}\": found \"{}\", wanted a path inside the plugin's folder", key, file));
    else if (!read_file(manifest.folder() / path))
      table->error(table->line(key),
                   fmt::format("\"{}\": found no readable file \"{}\", wanted one in {}", key, file,
                               manifest.folder().string()));
  }
}

static OpDecl read_op(const toml::table& toml, const Manifest& manifest, size_t number,
                      std::vector<std::string>* errors) {
  TomlTable table(toml, manifest.path.string(), fmt::format("[[op]] {}", number), errors);
  table.only({"schema", "doc", "shape", "devices", "dtypes", "flags", "device-arg", "backward"});
  OpDecl op;
  op.line = table.line();
  op.schema = table.text("schema", true);
  op.schema_line = table.line("schema");
  op.doc = table.text("doc", true);
  op.shape = table.texts("shape", false);
  op.shape_line = table.line("shape");
  op.devices = table.texts("devices", true);
  check_words(&table, "devices", op.devices, kDevices);
  op.dtypes = table.texts("dtypes", true);
  std::set<std::string> seen;
  for (const std::string& dtype : op.dtypes) {
    if (!parse_dtype(dtype))
      table.error(table.line("dtypes"),
                  fmt::format("\"dtypes\": found \"{}\", wanted names such as float32, float16, "
                              "bfloat16, int64, bool, float8_e4m3fn",
                              dtype));
    else if (!seen.insert(dtype).second)
      table.error(table.line("dtypes"),
                  fmt::format("\"dtypes\": found \"{}\" twice, wanted it once", dtype));
  }
  op.flags = table.texts("flags", false);
  std::vector<std::string> flag_names;
  for (const auto& [name, bit] : kFlags) {
    flag_names.push_back(name);
    if (std::find(op.flags.begin(), op.flags.end(), name) != op.flags.end()) op.flag_bits |= bit;
  }
  check_words(&table, "flags", op.flags, flag_names);
  op.device_arg = table.text("device-arg", false);
  op.device_arg_line = table.line("device-arg");
  op.backward = table.text("backward", false);
  return op;
}

static void read_device(const toml::table& toml, Manifest* manifest,
                        std::vector<std::string>* errors) {
  TomlTable table(toml, manifest->path.string(), "[device]", errors);
  table.only({"sources", "kernels"});
  DeviceDecl device;
  device.sources = table.texts("sources", true);
  check_files(&table, "sources", *manifest, device.sources);
  device.kernels = table.texts("kernels", true);
  std::set<std::string> seen;
  for (const std::string& kernel : device.kernels)
    if (!seen.insert(kernel).second)
      table.error(table.line("kernels"),
                  fmt::format("\"kernels\": found \"{}\" twice, wanted it once", kernel));
  // The image table has 48 bytes for a name.
  for (const std::string& source : device.sources)
    if (std::filesystem::path(source).filename().string().size() > 47)
      table.error(
          table.line("sources"),
          fmt::format("\"sources\": found the file name \"{}\", wanted at most 47 bytes", source));
  bool used = false;
  for (const OpDecl& op : manifest->ops)
    for (const std::string& name : op.devices) used |= name != "cpu";
  if (!used)
    table.error(table.line(),
                "found device code, wanted an op with \"cuda\" or \"rocm\" in its "
                "\"devices\"");
  manifest->device = std::move(device);
}

static bool is_range(std::string_view range) {
  for (size_t begin = 0; begin <= range.size();) {
    size_t end = std::min(range.find(',', begin), range.size());
    std::string_view part = range.substr(begin, end - begin);
    while (part.starts_with(' ')) part.remove_prefix(1);
    size_t digits = part.find_first_of("0123456789");
    if (digits == std::string_view::npos) return false;
    std::string_view comparison = part.substr(0, digits);
    while (comparison.ends_with(' ')) comparison.remove_suffix(1);
    const std::set<std::string_view> known = {">=", "<=", "==", "!=", ">", "<"};
    if (!known.contains(comparison) || !Version::parse(part.substr(digits))) return false;
    begin = end + 1;
  }
  return true;
}

static void read_requires(const toml::table& toml, Manifest* manifest,
                          std::vector<std::string>* errors) {
  TomlTable table(toml, manifest->path.string(), "[requires]", errors);
  table.only(kLibraries);
  for (const std::string& library : kLibraries) {
    std::string range = table.text(library, false);
    if (range.empty()) continue;
    if (!is_range(range))
      table.error(table.line(library),
                  fmt::format("\"{}\": found \"{}\", wanted comparisons such as \">=2.11,<3\"",
                              library, range));
    manifest->libraries.push_back({library, range});
  }
}

static void read_head(TomlTable* table, Manifest* manifest) {
  table->only({"name", "version", "license", "sources", "reference", "op", "device", "requires"});
  manifest->name = table->text("name", true);
  if (!manifest->name.empty() && !is_identifier(manifest->name))
    table->error(table->line("name"),
                 fmt::format("\"name\": found \"{}\", wanted letters, digits and '_', at most 64, "
                             "no digit first",
                             manifest->name));
  manifest->version = table->text("version", true);
  if (!manifest->version.empty() &&
      (!Version::parse(manifest->version) ||
       manifest->version.find_first_not_of("0123456789.") != std::string::npos))
    table->error(table->line("version"),
                 fmt::format("\"version\": found \"{}\", wanted dotted numbers such as \"0.1.0\"",
                             manifest->version));
  manifest->license = table->text("license", true);
  manifest->sources = table->texts("sources", true);
  check_files(table, "sources", *manifest, manifest->sources);
  manifest->reference = table->text("reference", false);
  if (!manifest->reference.empty())
    check_files(table, "reference", *manifest, {manifest->reference});
}

// A member that must be a table, or null with an error.
static const toml::table* sub_table(const toml::table& root, const char* key, TomlTable* head) {
  const toml::node* node = root.get(key);
  if (!node) return nullptr;
  if (!node->is_table())
    head->error(head->line(key), fmt::format("\"{}\": wanted a table [{}]", key, key));
  return node->as_table();
}

std::optional<Manifest> read_manifest(const std::filesystem::path& path,
                                      std::vector<std::string>* errors) {
  const size_t errors_before = errors->size();
  Manifest manifest;
  manifest.path = path;
  std::optional<std::string> text = read_file(path);
  if (!text) {
    errors->push_back(
        fmt::format("{}:0: found no readable file, wanted a plugin.toml", path.string()));
    return std::nullopt;
  }
  manifest.text = *text;
  toml::table root;
  try {
    root = toml::parse(manifest.text, path.string());
  } catch (const toml::parse_error& problem) {
    errors->push_back(fmt::format("{}:{}: not TOML: {}", path.string(), problem.source().begin.line,
                                  problem.description()));
    return std::nullopt;
  }

  TomlTable head(root, path.string(), "", errors);
  read_head(&head, &manifest);
  const toml::node* ops = root.get("op");
  const toml::array* list = ops ? ops->as_array() : nullptr;
  if (!list || list->empty() || !list->is_homogeneous<toml::table>()) {
    head.error(head.line("op"), "found no op, wanted at least one [[op]] table");
  } else {
    for (size_t i = 0; i < list->size(); ++i)
      manifest.ops.push_back(read_op(*list->get(i)->as_table(), manifest, i + 1, errors));
  }
  if (const toml::table* device = sub_table(root, "device", &head))
    read_device(*device, &manifest, errors);
  if (const toml::table* libraries = sub_table(root, "requires", &head))
    read_requires(*libraries, &manifest, errors);
  if (errors->size() != errors_before) return std::nullopt;
  return manifest;
}

}  // namespace opdock
