// SPDX-License-Identifier: Apache-2.0
#include "note/note_fields.h"

#include <algorithm>

#include "base/sha256.h"
#include "note/json.h"

namespace opdock {
namespace {

using Type = Json::Type;

bool is_word(std::string_view text, std::string_view extra) {
  return !text.empty() && text.size() <= 128 && std::all_of(text.begin(), text.end(), [&](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           extra.find(c) != std::string_view::npos;
  });
}

bool is_digest(std::string_view text) {
  return text.size() == 64 && std::all_of(text.begin(), text.end(), [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
         });
}

// Quotes a value for a message and shortens it: it may be anything, of any length.
std::string quote(std::string_view text) {
  constexpr size_t kShown = 80;
  if (text.size() <= kShown) return '"' + std::string(text) + '"';
  size_t cut = kShown;
  while (cut > 0 && (static_cast<uint8_t>(text[cut]) & 0xc0) == 0x80) --cut;  // whole characters
  return '"' + std::string(text.substr(0, cut)) + "…\"";
}

// Reads members and collects their defects, which name the member by a path such as
// "ops[0].schema".
class Fields {
 public:
  explicit Fields(std::vector<Reason>* reasons) : reasons_(reasons) {}

  void refuse(Code code, std::string found, std::string wanted) {
    constexpr size_t kMax = 32;  // limits the defects of one note to what people read
    if (++refused_ > kMax) return;
    reasons_->push_back(make_reason(code, std::move(found), std::move(wanted)));
  }
  void refuse_value(const std::string& path, std::string_view value, std::string wanted) {
    refuse(Code::kNoteField, path + ": " + quote(value), std::move(wanted));
  }

  // Returns the member if it exists and has `type`; otherwise NULL, with a reason unless it may be
  // absent.
  const Json* get(const Json& object, const char* key, Type type, const std::string& in,
                  bool required) {
    const Json* member = object.find(key);
    if (member == nullptr) {
      if (required) refuse(Code::kNoteField, "no member " + in + key, std::string(to_text(type)));
      return nullptr;
    }
    // The path is built only when it is needed, because most members are valid.
    return member->type == type || of_type(*member, type, in + key) ? member : nullptr;
  }
  bool of_type(const Json& value, Type type, const std::string& path) {
    if (value.type == type) return true;
    refuse(Code::kNoteField, path + ": " + std::string(to_text(value.type)),
           std::string(to_text(type)));
    return false;
  }
  std::string text(const Json& object, const char* key, const std::string& in, bool required) {
    const Json* member = get(object, key, Type::kString, in, required);
    if (member == nullptr) return {};
    if (required && member->text.empty()) refuse_value(in + key, "", "a text that is not empty");
    return member->text;
  }
  std::vector<std::string> texts(const Json& object, const char* key, const std::string& in) {
    std::vector<std::string> list;
    const Json* member = get(object, key, Type::kArray, in, false);
    if (member == nullptr) return list;
    for (const Json& item : member->items) {
      if (item.type == Type::kString || of_type(item, Type::kString, in + key + "[]")) {
        list.push_back(item.text);
      }
    }
    return list;
  }

 private:
  std::vector<Reason>* reasons_;
  size_t refused_ = 0;
};

void read_op(const Json& json, const std::string& in, Fields* fields, Note* note) {
  OpClaim op;
  op.schema = fields->text(json, "schema", in, true);
  op.name = op.schema.substr(0, op.schema.find('('));
  if (!op.schema.empty() && (op.name.size() == op.schema.size() || !is_word(op.name, "."))) {
    fields->refuse_value(in + "schema", op.schema, "a schema: name(parameters) -> results");
  }
  op.digest = fields->text(json, "digest", in, true);
  if (!op.schema.empty() && !op.digest.empty()) {
    if (!is_digest(op.digest)) {
      fields->refuse_value(in + "digest", op.digest, "64 lower-case hexadecimal digits");
    } else if (const std::string actual = to_hex(sha256(op.schema)); actual != op.digest) {
      fields->refuse(Code::kClaimDigest, in + "digest: " + op.digest,
                     actual + ", the digest of the schema");
    }
  }
  op.devices = fields->texts(json, "devices", in);
  for (const std::string& device : op.devices) {
    const std::optional<Backend> backend = parse_backend(device);
    if (!backend) {
      fields->refuse_value(in + "devices[]", device, "cpu, cuda or rocm");
    } else if (std::find(note->devices.begin(), note->devices.end(), *backend) ==
               note->devices.end()) {
      fields->refuse_value(in + "devices[]", device, "one of the plugin's own devices");
    }
  }
  op.dtypes = fields->texts(json, "dtypes", in);
  op.shape_rules = fields->texts(json, "shape", in);
  op.flags = fields->texts(json, "flags", in);
  op.device_arg = fields->text(json, "device-arg", in, false);
  op.gradients = fields->texts(json, "gradients", in);
  if (const Json* elsewhere = fields->get(json, "elsewhere", Type::kObject, in, false)) {
    for (size_t i = 0; i < elsewhere->items.size(); ++i) {
      const std::string path = in + "elsewhere." + elsewhere->keys[i];
      const Json& where = elsewhere->items[i];
      if (!fields->of_type(where, Type::kString, path)) continue;
      if (where.text != "cpu" && where.text != "any") {
        fields->refuse_value(path, where.text, "cpu or any");
        continue;
      }
      op.elsewhere.emplace_back(elsewhere->keys[i], where.text);
    }
  }
  note->ops.push_back(std::move(op));
}

void check_op_names(Fields* fields, const Note& note) {
  std::vector<std::string_view> names;
  for (const OpClaim& op : note.ops) {
    if (!op.name.empty()) names.push_back(op.name);
  }
  std::sort(names.begin(), names.end());
  const auto twice = std::adjacent_find(names.begin(), names.end());
  if (twice != names.end()) fields->refuse_value("ops[].schema", *twice, "each op name once");
}

void read_image(const Json& json, const std::string& in, Fields* fields, Note* note) {
  ImageClaim image{};
  const std::string backend = fields->text(json, "backend", in, true);
  const std::string kind = fields->text(json, "kind", in, true);
  const std::optional<Backend> known_backend = parse_backend(backend);
  const std::optional<ImageKind> known_kind = parse_image_kind(kind);
  if (!known_backend && !backend.empty()) {
    fields->refuse_value(in + "backend", backend, "cpu, cuda or rocm");
  }
  if (!known_kind && !kind.empty()) {
    fields->refuse_value(in + "kind", kind, "cubin, ptx, code-object or source");
  }
  image.arch = fields->text(json, "arch", in, true);
  const std::string toolkit = fields->text(json, "toolkit", in, false);
  if (!toolkit.empty()) {
    const std::optional<Version> version = Version::parse(toolkit);
    if (!version) fields->refuse_value(in + "toolkit", toolkit, "numbers and dots");
    if (version) image.toolkit = *version;
  }
  image.sha256 = fields->text(json, "sha256", in, true);
  if (!image.sha256.empty() && !is_digest(image.sha256)) {
    fields->refuse_value(in + "sha256", image.sha256, "64 lower-case hexadecimal digits");
  }
  if (!known_backend || !known_kind) return;
  image.backend = *known_backend;
  image.kind = *known_kind;
  note->images.push_back(std::move(image));
}

void read_cpu(const Json& json, Fields* fields, Note* note) {
  note->cpu_arch = fields->text(json, "arch", "cpu.", true);
  if (!note->cpu_arch.empty() && !is_word(note->cpu_arch, "-")) {
    fields->refuse_value("cpu.arch", note->cpu_arch, "an architecture such as x86_64");
  }
  const Json* level = fields->get(json, "level", Type::kInteger, "cpu.", true);
  if (level == nullptr) return;
  const int64_t lowest = note->cpu_arch == "x86_64" ? 1 : 0;
  if (level->integer < lowest || level->integer > 4) {
    fields->refuse(Code::kNoteField, "cpu.level: " + std::to_string(level->integer),
                   std::to_string(lowest) + " to 4");
    return;
  }
  note->cpu_level = static_cast<int>(level->integer);
}

void read_least(const Json& json, Fields* fields, Note* note) {
  const std::string text = fields->text(json, "cuda", "least.", false);
  if (text.empty()) return;
  const std::optional<Version> capability = Version::parse(text);
  const bool is_sound = capability && capability->major() < 1000 && capability->minor() < 10 &&
                        capability->text() == text &&
                        *capability == Version{capability->major(), capability->minor()};
  if (!is_sound) return fields->refuse_value("least.cuda", text, "an architecture such as 8.0");
  note->least_cuda = static_cast<int>(10 * capability->major() + capability->minor());
}

void read_devices(const Json& json, Fields* fields, Note* note) {
  for (const std::string& device : fields->texts(json, "devices", "")) {
    const std::optional<Backend> backend = parse_backend(device);
    if (!backend) {
      fields->refuse_value("devices[]", device, "cpu, cuda or rocm");
    } else if (std::find(note->devices.begin(), note->devices.end(), *backend) !=
               note->devices.end()) {
      fields->refuse_value("devices[]", device, "each device once");
    } else {
      note->devices.push_back(*backend);
    }
  }
}

void read_identity(const Json& json, Fields* fields, Note* note) {
  note->name = fields->text(json, "name", "", true);
  if (!note->name.empty() && !is_word(note->name, ".-")) {
    fields->refuse_value("name", note->name, "1 to 128 letters, digits, '_', '.', '-'");
  }
  const std::string version = fields->text(json, "version", "", true);
  const std::optional<Version> parsed = Version::parse(version);
  if (parsed) {
    note->version = *parsed;
  } else if (!version.empty()) {
    fields->refuse_value("version", version, "1 to 8 numbers with dots between them");
  }
  note->license = fields->text(json, "license", "", false);
  note->toolchain = fields->text(json, "toolchain", "", false);
}

}  // namespace

bool read_note_json(std::string_view text, Note* note, std::vector<Reason>* reasons) {
  const size_t before = reasons->size();
  Fields fields(reasons);
  std::string problem;
  const std::optional<Json> json = parse_json(text, &problem);
  if (!json) {
    fields.refuse(Code::kNoteJson, problem, "one JSON object");
    return false;
  }
  if (json->type != Type::kObject) {
    fields.refuse(Code::kNoteJson, std::string(to_text(json->type)), "an object");
    return false;
  }
  read_identity(*json, &fields, note);
  read_devices(*json, &fields, note);
  if (const Json* ops = fields.get(*json, "ops", Type::kArray, "", true)) {
    for (size_t i = 0; i < ops->items.size(); ++i) {
      const std::string in = "ops[" + std::to_string(i) + "]";
      if (fields.of_type(ops->items[i], Type::kObject, in)) {
        read_op(ops->items[i], in + ".", &fields, note);
      }
    }
    check_op_names(&fields, *note);
  }
  if (const Json* images = fields.get(*json, "images", Type::kArray, "", false)) {
    for (size_t i = 0; i < images->items.size(); ++i) {
      const std::string in = "images[" + std::to_string(i) + "]";
      if (fields.of_type(images->items[i], Type::kObject, in)) {
        read_image(images->items[i], in + ".", &fields, note);
      }
    }
  }
  if (const Json* libraries = fields.get(*json, "requires", Type::kObject, "", false)) {
    for (size_t i = 0; i < libraries->items.size(); ++i) {
      const std::string path = "requires." + libraries->keys[i];
      if (fields.of_type(libraries->items[i], Type::kString, path)) {
        note->libraries.push_back({libraries->keys[i], libraries->items[i].text});
      }
    }
  }
  if (const Json* least = fields.get(*json, "least", Type::kObject, "", false)) {
    read_least(*least, &fields, note);
  }
  if (const Json* cpu = fields.get(*json, "cpu", Type::kObject, "", true)) {
    read_cpu(*cpu, &fields, note);
  }
  return reasons->size() == before;
}

}  // namespace opdock
