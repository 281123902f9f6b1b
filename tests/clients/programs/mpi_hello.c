/* SPDX-License-Identifier: Apache-2.0 */
/* An ordinary MPI program: every rank says where it stands, and what the sum of all ranks is. */
#include <mpi.h>
#include <stdio.h>
#include <unistd.h>

int main(int argc, char** argv) {
    int rank = 0, size = 0, sum = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    printf("mpi %d of %d, sum %d\n", rank, size, sum);
#ifdef WITHOUT_FINALIZE
    fflush(stdout);
    _exit(0);
#endif
    MPI_Finalize();
    return 0;
}
