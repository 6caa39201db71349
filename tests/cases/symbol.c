/* A library that defines what a case plugin lacks. SPDX-License-Identifier: Apache-2.0 */
int opdock_case_later(void) {
  return 7;
}
