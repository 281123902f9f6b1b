/* SPDX-License-Identifier: Apache-2.0 */
/* Four MPI ranks reduce gradients, as one would by hand. argv: what rank 3 does once: "sleep", or "nothing"; for how many seconds all go on; of which
 * each step computes so many microseconds. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static double gradients[1024];

static void load_batch(const char* what) {
    if (strcmp(what, "sleep") == 0) sleep(1000000);
}

static void backward(double seconds) {
    const double end = MPI_Wtime() + seconds;
    while (MPI_Wtime() < end)
        for (int i = 0; i < 1024; ++i) gradients[i] += 1e-9 * i;
}

static void train(const char* what, double seconds, double of_step) {
    int rank = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    const double end = MPI_Wtime() + seconds;
    int is_over = 0;
    for (int step = 0; !is_over; ++step) {
        if (rank == 3 && step == 10) load_batch(what);
        backward(of_step);
        MPI_Allreduce(MPI_IN_PLACE, gradients, 1024, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
        is_over = MPI_Wtime() > end;
        MPI_Bcast(&is_over, 1, MPI_INT, 0, MPI_COMM_WORLD);
    }
}

int main(int argc, char** argv) {
    MPI_Init(&argc, &argv);
    if (argc != 4) return 2;
    train(argv[1], atof(argv[2]), atof(argv[3]) * 1e-6);
    puts("trained");
    fflush(stdout);
#ifdef WITHOUT_FINALIZE
    _exit(0);
#endif
    MPI_Finalize();
    return 0;
}
