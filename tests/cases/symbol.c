/* A library that defines a symbol that a case plugin needs. SPDX-License-Identifier: Apache-2.0 */
int opdock_case_later(void) {
  return 7;
}
