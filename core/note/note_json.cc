// Writes the note's JSON.
// SPDX-License-Identifier: Apache-2.0
#include <nlohmann/json.hpp>

#include "base/sha256.h"
#include "note/note.h"

namespace opdock {

std::string note_json(const Note& note) {
  using OrderedJson = nlohmann::ordered_json;
  OrderedJson json;
  json["name"] = note.name;
  json["version"] = note.version.text();
  if (!note.license.empty()) json["license"] = note.license;
  json["ops"] = OrderedJson::array();
  for (const OpClaim& op : note.ops) {
    OrderedJson out;
    out["schema"] = op.schema;
    out["digest"] = op.digest.empty() ? to_hex(sha256(op.schema)) : op.digest;
    out["devices"] = op.devices;
    out["dtypes"] = op.dtypes;
    out["shape"] = op.shape_rules;
    out["flags"] = op.flags;
    if (!op.device_arg.empty()) out["device-arg"] = op.device_arg;
    for (const auto& [param, where] : op.elsewhere) out["elsewhere"][param] = where;
    if (!op.gradients.empty()) out["gradients"] = op.gradients;
    json["ops"].push_back(std::move(out));
  }
  json["devices"] = OrderedJson::array();
  for (const Backend backend : note.devices) json["devices"].push_back(to_text(backend));
  if (!note.images.empty()) json["images"] = OrderedJson::array();
  for (const ImageClaim& image : note.images) {
    OrderedJson out;
    out["backend"] = to_text(image.backend);
    out["kind"] = to_text(image.kind);
    out["arch"] = image.arch;
    if (!image.toolkit.empty()) out["toolkit"] = image.toolkit.text();
    out["sha256"] = image.sha256;
    json["images"].push_back(std::move(out));
  }
  if (!note.libraries.empty()) json["requires"] = OrderedJson::object();
  for (const LibraryClaim& claim : note.libraries) json["requires"][claim.library] = claim.range;
  if (note.least_cuda != 0) {
    const Version capability{static_cast<uint32_t>(note.least_cuda) / 10,
                             static_cast<uint32_t>(note.least_cuda) % 10};
    json["least"] = {{"cuda", capability.text()}};
  }
  json["cpu"] = {{"arch", note.cpu_arch}, {"level", note.cpu_level}};
  if (!note.toolchain.empty()) json["toolchain"] = note.toolchain;
  return json.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
}

}  // namespace opdock
