"""How Spack (1.0 or newer) builds and installs the checkout that this file lies in: docs/guides/spack.md."""

from pathlib import Path

from spack.package import (
    Executable,
    build_system_flags,
    cache_extra_test_sources,
    check_outputs,
    conflicts,
    depends_on,
    join_path,
    license,
    requires,
    run_after,
    variant,
    version,
    working_dir,
)
from spack_repo.builtin.build_systems.cmake import CMakePackage
from spack_repo.builtin.build_systems.cuda import CudaPackage


class CuszAdios2(CMakePackage, CudaPackage):
    """Error-bounded lossy compression of simulation fields: a library with a C interface, an operator plugin for ADIOS2
    and a filter for HDF5."""

    license("BSD-3-Clause")

    git = f"file://{Path(__file__).resolve().parents[6]}"  # only committed changes are seen
    version("0.3.0")

    variant("adios2", default=True, description="Build the ADIOS2 operator plugin")
    variant("hdf5", default=True, description="Build the HDF5 filter")
    variant("zstd", default=True, description="Build the optional lossless stage with zstd")

    requires("platform=linux")
    depends_on("c", type="build")
    depends_on("cxx", type="build")
    depends_on("cmake@3.25:", type="build")
    conflicts("%gcc@:10", msg="cusz needs GCC 11 or newer")
    conflicts("%clang@:13", msg="cusz needs clang 14 or newer")

    # Neither ADIOS2 nor HDF5 is needed to build the modules that they load. ADIOS2 is listed so that it and the plugin
    # are in one environment and fit each other. The filter works with whatever HDF5 a program has.
    depends_on("adios2@2.10:2.12", type="run", when="+adios2")
    conflicts("^hdf5@:1.8", when="+hdf5", msg="the filter needs HDF5 1.10 or newer")
    depends_on("zstd", when="+zstd")

    # nvcc has C++20 from 12.0 on, and sm_100 from 12.8 on, for which CMakeLists.txt builds by default.
    depends_on("cuda@12:", when="+cuda")
    depends_on("cuda@12.8:", when="+cuda cuda_arch=none")

    # CMakeLists.txt refuses flags that would break the error bound, so it has to see them.
    flag_handler = build_system_flags

    test_requires_compiler = True

    def cmake_args(self):
        args = [
            self.define("CMAKE_INSTALL_LIBDIR", "lib"),
            self.define_from_variant("CUSZ_BUILD_OPERATOR", "adios2"),
            self.define_from_variant("CUSZ_BUILD_HDF5", "hdf5"),
            self.define_from_variant("CUSZ_USE_CUDA", "cuda"),
            self.define_from_variant("CUSZ_USE_ZSTD", "zstd"),
        ]
        if self.spec.satisfies("+cuda") and not self.spec.satisfies("cuda_arch=none"):
            args.append(self.define("CUSZ_CUDA_ARCHITECTURES", self.spec.variants["cuda_arch"].value))
        return args

    def setup_run_environment(self, env):
        if self.spec.satisfies("+adios2"):
            env.prepend_path("ADIOS2_PLUGIN_PATH", self.prefix.lib)
        if self.spec.satisfies("+hdf5"):
            env.prepend_path("HDF5_PLUGIN_PATH", join_path(self.prefix.lib, "cusz", "hdf5_plugin"))

    @run_after("install")
    def keep_the_example(self):
        cache_extra_test_sources(self, "apps/c_example")

    def test_c_example(self):
        """Build the C example with the installed package, and run it"""
        example = self.test_suite.current_test_cache_dir.apps.c_example
        cmake = Executable(self.spec["cmake"].prefix.bin.cmake)
        with working_dir("build", create=True):
            cmake(example, f"-DCMAKE_PREFIX_PATH={self.prefix}")
            cmake("--build", ".")
            said = Executable(join_path(".", "c_example"))(output=str.split, error=str.split)
        check_outputs([r"cusz \d+\.\d+\.\d+: 480000 -> ", "one bit flipped: corrupt archive"], said)
