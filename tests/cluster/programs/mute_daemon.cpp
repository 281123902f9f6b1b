// SPDX-License-Identifier: Apache-2.0
//
// Stands in for dp-rendezvousd in the cluster tests: starts, holds what it was given, and never says a word.
#include <unistd.h>

int main() {
    for (;;) pause();
}
