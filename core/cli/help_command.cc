// opdock help and completion: print what the command's declarations say.
// SPDX-License-Identifier: Apache-2.0
#include "command_line.h"
#include "report_text.h"

namespace opdock::cli {

int help_command(const Arguments& args) {
  print(args.manual ? manual_page(describe_commands()) : help_text(args.words));
  return kGood;
}

int completion_command(const std::string& shell) {
  print(completion_script(describe_commands(), shell));
  return kGood;
}

}  // namespace opdock::cli
