#include "sample_boxes.hpp"

#include "device/launch.cuh"

namespace cusz::cuda {

// A block takes one box after another.
template <class T>
__global__ void __launch_bounds__(256) copy_boxes_kernel(const CopyBoxesArguments<T> a) {
    for (std::uint32_t b = blockIdx.x; b < a.n_boxes; b += gridDim.x) {
        const BoxToCopy& box = a.boxes[b];
        const auto& [offset, edge, stride] = box.from;
        for (std::uint32_t i = threadIdx.x; i < box.from.values(); i += blockDim.x) {
            std::uint64_t from = offset;
            std::uint32_t rest = i;
            for (std::uint32_t axis = 0; axis < 4; ++axis) {
                from += rest % edge[axis] * stride[axis];
                rest /= edge[axis];
            }
            a.copy[box.to + i] = a.field[from];
        }
    }
}

template <class T>
void copy_boxes(const CopyBoxesArguments<T>& a, cudaStream_t stream) {
    launch<copy_boxes_kernel<T>>(a, 256, 0, a.n_boxes, false, stream);
}

template void copy_boxes(const CopyBoxesArguments<float>&, cudaStream_t);
template void copy_boxes(const CopyBoxesArguments<double>&, cudaStream_t);

} // namespace cusz::cuda
