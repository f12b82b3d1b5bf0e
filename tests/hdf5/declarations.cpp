// Compiles if the declarations of cusz_core/hdf5/hdf5.hpp match the headers of HDF5 as far as calls are concerned: in
// the sizes of arguments and results, and in whether they are pointers.
#include "hdf5.hpp"

#include <hdf5.h>

#include <H5PLextern.h>

#include <cstddef>
#include <type_traits>

template <typename A, typename B>
constexpr bool alike = sizeof(A) == sizeof(B) && std::is_pointer_v<A> == std::is_pointer_v<B>;

template <typename Ours, typename Theirs>
struct SameCall : std::false_type {};
template <typename R, typename... A, typename S, typename... B>
    requires(sizeof...(A) == sizeof...(B))
struct SameCall<R(A...), S(B...)> : std::bool_constant<alike<R, S> && (alike<A, B> && ...)> {};
template <typename R, typename... A, typename S, typename... B>
    requires(sizeof...(A) == sizeof...(B))
struct SameCall<R(A..., ...), S(B..., ...)> : std::bool_constant<alike<R, S> && (alike<A, B> && ...)> {};

#define SAME_FUNCTION(name) static_assert(SameCall<cusz_hdf5::name##_t, decltype(name)>::value, #name)
SAME_FUNCTION(H5Epush2);
SAME_FUNCTION(H5Pfill_value_defined);
SAME_FUNCTION(H5Pget_chunk);
SAME_FUNCTION(H5Pget_fill_time);
SAME_FUNCTION(H5Pget_fill_value);
SAME_FUNCTION(H5Pget_filter2);
SAME_FUNCTION(H5Pmodify_filter);
SAME_FUNCTION(H5Tget_class);
SAME_FUNCTION(H5Tget_ebias);
SAME_FUNCTION(H5Tget_fields);
SAME_FUNCTION(H5Tget_order);
SAME_FUNCTION(H5Tget_size);
SAME_FUNCTION(H5allocate_memory);
SAME_FUNCTION(H5free_memory);
static_assert(SameCall<int(), decltype(H5PLget_plugin_type)>::value);
static_assert(SameCall<const void*(), decltype(H5PLget_plugin_info)>::value);

#define SAME_CALLBACK(name)                                                                                            \
    static_assert(SameCall<std::remove_pointer_t<cusz_hdf5::name>, std::remove_pointer_t<::name>>::value, #name)
SAME_CALLBACK(H5Z_can_apply_func_t);
SAME_CALLBACK(H5Z_set_local_func_t);
SAME_CALLBACK(H5Z_func_t);

#define SAME_MEMBER(name)                                                                                              \
    static_assert(offsetof(cusz_hdf5::H5Z_class2_t, name) == offsetof(::H5Z_class2_t, name), #name)
SAME_MEMBER(version);
SAME_MEMBER(id);
SAME_MEMBER(encoder_present);
SAME_MEMBER(decoder_present);
SAME_MEMBER(name);
SAME_MEMBER(can_apply);
SAME_MEMBER(set_local);
SAME_MEMBER(filter);
static_assert(sizeof(cusz_hdf5::H5Z_class2_t) == sizeof(::H5Z_class2_t));

static_assert(cusz_hdf5::class_version == H5Z_CLASS_T_VERS);
static_assert(cusz_hdf5::plugin_type_filter == H5PL_TYPE_FILTER);
static_assert(cusz_hdf5::flag_reverse == H5Z_FLAG_REVERSE);
static_assert(cusz_hdf5::max_rank == H5S_MAX_RANK);
static_assert(cusz_hdf5::class_float == H5T_FLOAT);
static_assert(cusz_hdf5::order_little_endian == H5T_ORDER_LE);
static_assert(cusz_hdf5::fill_value_user_defined == H5D_FILL_VALUE_USER_DEFINED);
static_assert(cusz_hdf5::fill_time_never == H5D_FILL_TIME_NEVER);
static_assert(cusz_hdf5::default_error_stack == H5E_DEFAULT);

// Variables that hold identifiers, of type hid_t.
static_assert(sizeof(H5E_ERR_CLS_g) == 8 && sizeof(H5E_PLINE_g) == 8 && sizeof(H5E_CANTFILTER_g) == 8);
