// opdock completion: makes completion scripts for shells from the declared commands.
// SPDX-License-Identifier: Apache-2.0
#include <functional>

#include "base/texts.h"
#include "command_line.h"
#include "fmt/format.h"
#include "report_text.h"

namespace opdock::cli {
namespace {

// Visits a command and all commands below it. `path`: "", "build", "cache gc".
void walk(const CommandInfo& command, const std::string& path,
          const std::function<void(const CommandInfo&, const std::string& path)>& visit) {
  visit(command, path);
  for (const CommandInfo& below : command.commands) {
    walk(below, path.empty() ? below.name : path + " " + below.name, visit);
  }
}

bool is_path(const std::string& value) {
  return value == "FILE" || value == "FOLDER" || value == "PATH" || value == "PATHS" ||
         value == "DIR";
}

std::vector<std::string> command_names(const CommandInfo& command) {
  std::vector<std::string> names;
  for (const CommandInfo& below : command.commands) names.push_back(below.name);
  return names;
}

// Returns `text` in single quotes, for a shell.
std::string in_quotes(const std::string& text) {
  std::string safe;
  for (char c : text) safe += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return "'" + safe + "'";
}

// ---- bash

std::string bash_script(const CommandInfo& root) {
  std::string commands, values, words;
  walk(root, "", [&](const CommandInfo& command, const std::string& path) {
    std::vector<std::string> options = command_names(command);
    bool takes_files = false;
    for (const OptionInfo& option : command.options) {
      options.insert(options.end(), option.names.begin(), option.names.end());
      if (option.names.empty()) {
        options.insert(options.end(), option.choices.begin(), option.choices.end());
        takes_files = takes_files || is_path(option.value);
      } else if (!option.value.empty()) {
        std::vector<std::string> patterns;
        for (const std::string& name : option.names) {
          patterns.push_back(in_quotes(path + ":" + name));
        }
        values += fmt::format("    {}) {} ;;\n", join(patterns, "|"),
                              !option.choices.empty()
                                  ? fmt::format("words={}", in_quotes(join(option.choices, " ")))
                              : is_path(option.value) ? "files=yes"
                                                      : ":");
      }
    }
    if (!command.commands.empty()) {
      for (const std::string& name : command_names(command)) {
        commands += fmt::format("      {}) command={} ;;\n",
                                in_quotes((path.empty() ? "" : path + " ") + name),
                                in_quotes((path.empty() ? "" : path + " ") + name));
      }
    }
    words += fmt::format("    {}) words={}{} ;;\n", in_quotes(path), in_quotes(join(options, " ")),
                         takes_files ? " files=yes" : "");
  });
  return fmt::format(R"(# bash completion for opdock; written by `opdock completion bash`.
_opdock() {{
  local word=${{COMP_WORDS[COMP_CWORD]}} before= command= words= files= i
  # Bash takes `--device=soft` apart at the `=`.
  if [[ $word == = ]]; then word=; before=${{COMP_WORDS[COMP_CWORD-1]}}
  elif ((COMP_CWORD > 1)) && [[ ${{COMP_WORDS[COMP_CWORD-1]}} == = ]]; then before=${{COMP_WORDS[COMP_CWORD-2]}}
  elif ((COMP_CWORD > 0)); then before=${{COMP_WORDS[COMP_CWORD-1]}}
  fi
  for ((i = 1; i < COMP_CWORD; i++)); do
    case "${{command:+$command }}${{COMP_WORDS[i]}}" in
{}      *) break ;;
    esac
  done
  case "$command:$before" in
{}    *) case "$command" in
{}    esac ;;
  esac
  COMPREPLY=($(compgen -W "$words" -- "$word"))
  if [[ -n $files && $word != -* ]]; then
    compopt -o filenames 2>/dev/null
    while IFS= read -r i; do COMPREPLY+=("$i"); done < <(compgen -f -- "$word")
  fi
}}
complete -F _opdock opdock
)",
                     commands, values, words);
}

// ---- zsh

// Escapes a text for use inside of _arguments' [brackets] or after its :colons:.
std::string zsh_text(const std::string& text) {
  std::string safe;
  for (char c : text) {
    if (c == '[' || c == ']' || c == ':' || c == '\\') safe += '\\';
    safe += c;
  }
  return safe;
}

std::string zsh_value(const OptionInfo& option) {
  const std::string action = !option.choices.empty() ? "(" + join(option.choices, " ") + ")"
                             : is_path(option.value) ? "_files"
                                                     : " ";
  return fmt::format(":{}:{}", zsh_text(option.value), action);
}

std::string zsh_function(const CommandInfo& command, const std::string& path) {
  std::string name = "_opdock" + (path.empty() ? "" : "_" + path);
  for (char& c : name) c = c == ' ' ? '_' : c;
  std::string lines;
  const auto add = [&](const std::string& spec) { lines += " \\\n    " + in_quotes(spec); };
  for (const OptionInfo& option : command.options) {
    if (option.names.empty()) {
      add((option.many ? std::string("*") : option.required ? "" : ":") + zsh_value(option));
      continue;
    }
    // One of several names rules the others out.
    const std::string rest = option.names.size() > 1 && !option.many
                                 ? "(" + join(option.names, " ") + ")"
                             : option.many ? "*"
                                           : "";
    for (const std::string& each : option.names) {
      add(fmt::format("{}{}[{}]{}", rest, each, zsh_text(option.text),
                      option.value.empty() ? "" : zsh_value(option)));
    }
  }
  if (command.commands.empty()) return fmt::format("{}() {{\n  _arguments{}\n}}\n", name, lines);
  add("1: :->command");
  add("*:: :->rest");
  std::string described, cases;
  for (const CommandInfo& below : command.commands) {
    described += " \\\n        " + in_quotes(below.name + ":" + zsh_text(below.text));
    std::string function = name + "_" + below.name;
    cases += fmt::format("        {}) {} ;;\n", below.name, function);
  }
  return fmt::format(R"({}() {{
  local state line
  typeset -A opt_args
  _arguments -C{}
  case $state in
    command)
      local -a commands=({})
      _describe command commands ;;
    rest)
      case $line[1] in
{}      esac ;;
  esac
}}
)",
                     name, lines, described, cases);
}

std::string zsh_script(const CommandInfo& root) {
  std::string text = "#compdef opdock\n# zsh completion; written by `opdock completion zsh`.\n";
  walk(root, "", [&](const CommandInfo& command, const std::string& path) {
    text += "\n" + zsh_function(command, path);
  });
  // Autoloaded, the file is the function's body; sourced, it registers itself.
  return text +
         "\nif [[ $funcstack[1] == _opdock ]]; then _opdock \"$@\"\nelse compdef _opdock "
         "opdock\nfi\n";
}

// ---- fish

std::string fish_script(const CommandInfo& root) {
  std::string text = R"(# fish completion for opdock; written by `opdock completion fish`.
# Whether the words before the cursor are just this command, or begin with it.
function __opdock_at
  set -l words (commandline -opc)[2..-1]
  test "$words" = "$argv[1]"
end
function __opdock_in
  set -l words (commandline -opc)[2..-1]
  test "$argv[1]" = "" -o "$words" = "$argv[1]"
  or string match -q -- "$argv[1] *" "$words"
end
complete -c opdock -f
)";
  walk(root, "", [&](const CommandInfo& command, const std::string& path) {
    const std::string here = in_quotes(path);
    for (const CommandInfo& below : command.commands) {
      text += fmt::format("complete -c opdock -n \"__opdock_at {}\" -a {} -d {}\n", here,
                          in_quotes(below.name), in_quotes(below.text));
    }
    const char* const condition = path.empty() ? "__opdock_at" : "__opdock_in";
    for (const OptionInfo& option : command.options) {
      std::string line = fmt::format("complete -c opdock -n \"{} {}\"", condition, here);
      for (const std::string& name : option.names) {
        line += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
      }
      const bool is_named = !option.names.empty();
      if (!option.choices.empty()) {
        line += (is_named ? " -x -a " : " -a ") + in_quotes(join(option.choices, " "));
      } else if (is_path(option.value)) {
        line += is_named ? " -r -F" : " -F";
      } else if (!option.value.empty()) {
        if (!is_named) continue;  // nothing to offer
        line += " -x";
      }
      text += line + " -d " + in_quotes(option.text) + "\n";
    }
  });
  return text;
}

}  // namespace

std::string completion_script(const CommandInfo& root, const std::string& shell) {
  if (shell == "bash") return bash_script(root);
  return shell == "zsh" ? zsh_script(root) : fish_script(root);
}

}  // namespace opdock::cli
