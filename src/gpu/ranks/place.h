/* Which layers of a model lie on which device, or that its outputs are cut over all. Layers of a device are adjacent,
 * and devices are in the order of their layers. The CPU, where it takes part, has the first ones: the head and the
 * draws are then a device's.
 *
 * The last layer of each kind that owns keys, and all behind it, lie on the last device, for layers without keys, and
 * drafters, read them. */
#ifndef EK_GPU_RANKS_PLACE_H
#define EK_GPU_RANKS_PLACE_H

#include "gpu/weights/cut.h"
#include "model/model.h"

enum { EK_RANKS = 16 }; /* devices at most */

/* AUTO: ek_ranks_plan chooses. */
typedef enum ek_split { EK_SPLIT_LAYERS, EK_SPLIT_OUTPUTS, EK_SPLIT_AUTO } ek_split;

/* What the CPU has of a model that does not fit: whole layers, or the experts of some. Either way the first ones. */
typedef enum ek_host_part { EK_HOST_CHOSEN, EK_HOST_LAYERS, EK_HOST_EXPERTS } ek_host_part;

typedef struct ek_place {
    ek_split split;       /* not AUTO */
    bool whole_o;         /* outputs are cut, and every device has all of o (gpu/weights/cut.h) */
    int n;                /* devices that have layers; the others were not needed */
    int host_end;         /* layers [0, host_end) are the CPU's */
    int host_experts;     /* of layers [0, host_experts) router and experts are; then host_end is 0 */
    int device[EK_RANKS]; /* which of those given */
    ek_model_share share[EK_RANKS];
    double bytes[EK_RANKS]; /* of weights */
    char why[512];          /* AUTO: outputs, which would be faster, are not cut, and why; else "" */
} ek_place;

/* room: bytes that each of n devices may take for all. With `host` the last devices take as many layers as leave a
 * quarter of their room for keys, values and a step, and the CPU the rest. Without, borders lie so that a few replies'
 * step takes no device longer than it must (gpu/ranks/stage.h), where weights then take half of each one's room at
 * most; else so that the fullest device is as empty as can be. ENOMEM has the numbers. Only sizes of m are read. */
ek_err ek_place_layers(ek_place *out, const ek_model *m, const double *room, int n, bool host);

/* With the CPU: layers, or as few layers' experts as leave a quarter of the devices' room, or of the two what lets the
 * CPU read fewer bytes of weights for a token. EUNSUPPORTED: experts are asked for of a model that has none. */
ek_err ek_place_with_host(ek_place *out, const ek_model *m, const double *room, int n, ek_host_part part);

/* Outputs cut over n devices, of which each has a share of every layer (gpu/weights/cut.h), and all of o where weights
 * take half of each one's room at most. EUNSUPPORTED: so many cannot share them; ENOMEM has the numbers. */
ek_err ek_place_outputs(ek_place *out, const ek_model *m, const double *room, int n);

/* The one or the other, not AUTO; a device alone has whole layers. part: with `host`. */
ek_err ek_place_by(ek_place *out, const ek_model *m, const double *room, int n, ek_split split, bool host,
                   ek_host_part part);

/* How the outputs of the i-th device are cut. */
ek_gpu_cut ek_place_cut(const ek_place *p, int i);

/* Of a device's room what weights take at most. */
double ek_place_share(bool host);

/* "layers 0 to 29 on cuda:0 (weights 30.5 GB), 30 to 59 and the head on cuda:1 (30.7 GB)", or "outputs cut over cuda:0
 * and cuda:1 (weights up to 15.60 GB each)"; ordinal: of the devices given. */
void ek_place_text(char *out, size_t size, const ek_place *p, const int *ordinal);

/* Gives the CPU layers [0, end), if it had fewer, or the experts of so many. The last device keeps the layers that it
 * must have. */
void ek_place_give_host(ek_place *p, const ek_model *m, int end);
void ek_place_give_host_experts(ek_place *p, const ek_model *m, int end);

#endif
