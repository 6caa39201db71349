/* A library that lies next to the plugin that needs it. SPDX-License-Identifier: Apache-2.0 */
int opdock_case_no_such_function(void) {
  return 0;
}
