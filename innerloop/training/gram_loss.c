/* The loss of linear attention on a batch of Gram matrices, and its gradient: kernel.py in C.

   Names and formulas are those of kernel.py. Prompts are taken as many at a time as a vector
   register has room for, so that all that a prompt needs stays in the first-level cache. Sums over
   prompts are kept for each place of the register, in double precision between runs of FLUSH.

   Set when compiled: REAL (float or double), D, LAYERS, ABOVE (rows above T; all rows where tokens
   are fixed), READ (rows of the loss) and GAMMAS (matrices Γ; 0 where tokens are fixed). */

#include <stdlib.h>
#include <string.h>

#define BYTES 64
#define V ((long)(BYTES / sizeof(REAL)))
#define FLUSH 64
#define MOVING (GAMMAS > 0)
#define ROWS (MOVING ? ABOVE + D : ABOVE)
#define LAST (MOVING ? READ : ROWS)

typedef REAL vec __attribute__((vector_size(BYTES)));

/* c_ij = start + sum_k a_ik b_kj for rows `low` up to `high`: a, b and start are expressions. */
#define PRODUCT(c, low, high, start, a, b)                 \
    for (int i = (low); i < (high); i++) {                 \
        vec sums[D];                                       \
        for (int j = 0; j < D; j++) sums[j] = (start);     \
        for (int k = 0; k < D; k++)                        \
            for (int j = 0; j < D; j++) sums[j] += (a) * (b); \
        for (int j = 0; j < D; j++) (c)[i][j] = sums[j];   \
    }

/* sums_ij += sum_k a_ik b_jk over `inner` k: what is added up over prompts. */
#define COLLECT(sums, high, inner, a, b)                   \
    for (int i = 0; i < (high); i++)                       \
        for (int j = 0; j < D; j++) {                      \
            vec sum = (sums)[i][j];                        \
            for (int k = 0; k < (inner); k++) sum += (a) * (b); \
            (sums)[i][j] = sum;                            \
        }

typedef struct {
    vec value;
    vec A[LAYERS][D][D], first[ROWS][D], offset[READ][D], gamma[GAMMAS + 1][D][D];
} Sums;

typedef struct {
    const REAL (*A)[D][D], (*first)[D], (*offset)[D], (*gamma)[D][D];
} Weights;

typedef struct {
    vec G[D][D], mass[D], target[READ][D];
} Prompts;

/* What the forward pass keeps for the backward pass; fixed tokens have H in the place of X. */
typedef struct {
    vec Y[LAYERS + 1][ROWS][D], X[LAYERS][ROWS][D], N[LAYERS][D][D], S[LAYERS][D][D];
    vec U[D][D], Q[D][D], slope[ROWS][D], X_slope[ROWS][D], onto[ROWS][D];
} Scratch;

typedef struct {
    Sums sums;
    Prompts prompts;
    Scratch scratch;
} Memory;

static const vec ZERO;

/* The loss of some prompts; `slope` becomes its gradient in the rows that are read. */
static void compare(const Prompts *p, Weights w, vec (*Y)[D], vec (*slope)[D], Sums *sums) {
    for (int i = 0; i < READ; i++)
        for (int j = 0; j < D; j++) {
            vec error = Y[i][j] - p->target[i][j] - w.offset[i][j];
            slope[i][j] = error * p->mass[j];
            sums->value += error * slope[i][j];
            slope[i][j] *= 2;
            sums->offset[i][j] -= slope[i][j];
        }
}

#if GAMMAS == 0

static void run(const Prompts *p, Weights w, int needs_gradient, Sums *sums, Scratch *m) {
    vec (*Y)[ROWS][D] = m->Y, (*H)[ROWS][D] = m->X, (*slope)[D] = m->slope, (*H_slope)[D] = m->onto;
    for (int i = 0; i < ROWS; i++)
        for (int j = 0; j < D; j++) Y[0][i][j] = ZERO + w.first[i][j];
    for (int l = 0; l < LAYERS; l++) {
        PRODUCT(H[l], 0, ROWS, ZERO, Y[l][i][k], p->G[k][j])
        PRODUCT(Y[l + 1], 0, ROWS, Y[l][i][j], H[l][i][k], w.A[l][k][j])
    }
    compare(p, w, Y[LAYERS], slope, sums);
    if (!needs_gradient) return;
    for (int l = LAYERS - 1; l >= 0; l--) {
        COLLECT(sums->A[l], D, ROWS, H[l][k][i], slope[k][j])
        PRODUCT(H_slope, 0, ROWS, ZERO, slope[i][k], w.A[l][j][k])
        PRODUCT(slope, 0, ROWS, slope[i][j], H_slope[i][k], p->G[k][j])
    }
    for (int i = 0; i < ROWS; i++)
        for (int j = 0; j < D; j++) sums->first[i][j] += slope[i][j];
}

#else

static void run(const Prompts *p, Weights w, int needs_gradient, Sums *sums, Scratch *m) {
    vec (*Y)[ROWS][D] = m->Y, (*X)[ROWS][D] = m->X, (*N)[D][D] = m->N, (*S)[D][D] = m->S;
    vec (*U)[D] = m->U, (*Q)[D] = m->Q;
    vec (*slope)[D] = m->slope, (*X_slope)[D] = m->X_slope, (*onto)[D] = m->onto;
    /* The first layer: T = I, S = G A, and all prompts share X, the rows of `first` and Γ. */
    PRODUCT(S[0], 0, D, ZERO, p->G[i][k], w.A[0][k][j])
    int rows = LAYERS == 1 ? LAST : ROWS;
#define SHARED(i, k) ((i) < ABOVE ? w.first[i][k] : w.gamma[0][(i) - ABOVE][k])
    PRODUCT(Y[1], 0, rows, ZERO + w.first[i][j], SHARED(i, k), S[0][k][j])
    for (int l = 1; l < LAYERS; l++) {
        vec (*T)[D] = Y[l] + ABOVE;
        rows = l == LAYERS - 1 ? LAST : ROWS;
        PRODUCT(N[l], 0, D, ZERO, w.A[l][i][k], T[k][j])
        PRODUCT(U, 0, D, ZERO, T[k][i], N[l][k][j])
        PRODUCT(S[l], 0, D, ZERO, p->G[i][k], U[k][j])
        memcpy(X[l], Y[l], ABOVE * sizeof(Y[l][0]));
        PRODUCT(X[l], ABOVE, rows, ZERO, w.gamma[l][i - ABOVE][k], T[k][j])
        PRODUCT(Y[l + 1], 0, rows, Y[l][i][j], X[l][i][k], S[l][k][j])
    }
    compare(p, w, Y[LAYERS], slope, sums);
    if (!needs_gradient) return;
    rows = LAST;
    for (int l = LAYERS - 1; l >= 1; l--) {
        vec (*T)[D] = Y[l] + ABOVE;
        PRODUCT(X_slope, 0, rows, ZERO, slope[i][k], S[l][j][k])
        memset(Q, 0, sizeof m->Q);
        COLLECT(Q, D, rows, X[l][k][i], slope[k][j])
        PRODUCT(U, 0, D, ZERO, p->G[i][k], Q[k][j]) /* the gradient in U */
        PRODUCT(Q, 0, D, ZERO, T[i][k], U[k][j])    /* the gradient in N */
        COLLECT(sums->A[l], D, D, Q[i][k], T[j][k])
        memcpy(onto, X_slope, ABOVE * sizeof(onto[0]));
        PRODUCT(onto, ABOVE, ROWS, ZERO, w.A[l][k][i - ABOVE], Q[k][j])
        PRODUCT(onto, ABOVE, ROWS, onto[i][j], N[l][i - ABOVE][k], U[j][k])
        if (rows > ABOVE) {
            COLLECT(sums->gamma[l], rows - ABOVE, D, X_slope[ABOVE + i][k], T[j][k])
            for (int r = 0; r < rows - ABOVE; r++)
                for (int i = 0; i < D; i++)
                    for (int j = 0; j < D; j++)
                        onto[ABOVE + i][j] += w.gamma[l][r][i] * X_slope[ABOVE + r][j];
        }
        for (int i = 0; i < rows; i++)
            for (int j = 0; j < D; j++) onto[i][j] += slope[i][j];
        memcpy(slope, onto, sizeof m->onto);
        rows = ROWS;
    }
    memset(Q, 0, sizeof m->Q);
    COLLECT(Q, D, rows, SHARED(k, i), slope[k][j])
    COLLECT(sums->A[0], D, D, p->G[i][k], Q[k][j])
    if (rows > ABOVE) COLLECT(sums->gamma[0], rows - ABOVE, D, slope[ABOVE + i][k], S[0][j][k])
}

#endif

static vec load(const REAL *from, long length, int is_shared) {
    vec values = ZERO;
    if (is_shared) return values + *from;
    memcpy(&values, from, (length < V ? length : V) * sizeof(REAL));
    return values;
}

/* Add sums over the places of registers to totals in double precision, and clear them. */
static void flush(Sums *sums, double *totals) {
    const vec *all = (const vec *)sums;
    for (size_t n = 0; n < sizeof(Sums) / sizeof(vec); n++)
        for (int v = 0; v < V; v++) totals[n] += all[n][v];
    memset(sums, 0, sizeof *sums);
}

/* Returns how many totals there are: value, A, first, offset and gamma, as `Sums` has them. */
long count_totals(void) { return sizeof(Sums) / sizeof(vec); }

/* Mass has `mass_rows` rows; mass and target are shared by all prompts, or have `batch` of each.
   Returns 0, or 1 where memory is short. */
int compute(long batch, const REAL *gram, const REAL *mass, int mass_rows, int shared_mass,
            const REAL *target, int shared_target, const REAL *A, const REAL *first,
            const REAL *offset, const REAL *gamma, int needs_gradient, double *totals) {
    Weights w = {(const void *)A, (const void *)first, (const void *)offset, (const void *)gamma};
    Memory *memory = NULL;
    if (posix_memalign((void **)&memory, BYTES, sizeof(Memory))) return 1;
    memset(memory, 0, sizeof(Memory));
    Prompts *p = &memory->prompts;
    for (long start = 0, done = 0; start < batch; start += V) {
        long left = batch - start, width = shared_mass ? 1 : batch;
        for (int i = 0; i < D; i++)
            for (int j = 0; j < D; j++)
                p->G[i][j] = load(gram + (i * D + j) * batch + start, left, 0);
        for (int j = 0; j < D; j++) {
            const REAL *row = mass + (mass_rows > 1 ? j * width : 0);
            p->mass[j] = load(shared_mass ? row : row + start, left, shared_mass);
            for (long v = left; v < V; v++) p->mass[j][v] = 0; /* where no prompts are left */
        }
        for (int i = 0; i < READ; i++)
            for (int j = 0; j < D; j++) {
                const REAL *entry = target + (i * D + j) * (shared_target ? 1 : batch);
                p->target[i][j] = load(shared_target ? entry : entry + start, left, shared_target);
            }
        run(p, w, needs_gradient, &memory->sums, &memory->scratch);
        if (++done % FLUSH == 0) flush(&memory->sums, totals);
    }
    flush(&memory->sums, totals);
    free(memory);
    return 0;
}
