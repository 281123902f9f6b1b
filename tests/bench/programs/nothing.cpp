// SPDX-License-Identifier: Apache-2.0
//
// What a step runs of which only the launch is to be measured. Linked statically, so that nothing has to be
// loaded for it.
int main() {}
