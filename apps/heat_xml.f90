! Heat conduction in 3-D, written through ADIOS2: heat_xml.cpp in Fortran.
!
!     mpirun -n 4 heat_xml_fortran OUTPUT [CONFIG [NX NY NZ STEPS INTERVAL]]
!
! An ordinary ADIOS2 and MPI program: how its variable "temperature" is stored (engine, operators) is decided by the
! ADIOS2 configuration file CONFIG (.xml or .yaml) alone; without one ("-"), by ADIOS2's defaults.
!
! The grid is periodic, cut into slabs along z, which is the slowest dimension in Fortran's memory; one slab per rank,
! with a plane of halo on either side:
!     T += rate (sum of the six neighbours - 6 T)
! All values are double. Output is at step 0 and after every INTERVAL steps.

module heat
    use, intrinsic :: iso_fortran_env, only: int64, real64
    use mpi
    implicit none
    private
    public :: slab_t, start, advance

    real(real64), parameter :: pi = 3.14159265358979323846_real64
    real(real64), parameter :: rate = 0.15_real64 ! the explicit step is stable up to 1/6

    ! One rank's slab: planes 1 to n of now; planes 0 and n + 1 are the halo.
    type :: slab_t
        integer :: nx, ny, nz
        integer :: first, n     ! planes below the slab, and in it
        integer :: below, above ! the ranks of its neighbours
        real(real64), allocatable :: now(:, :, :), next(:, :, :)
    end type

contains

    subroutine start(slab, nx, ny, nz, rank, ranks)
        type(slab_t), intent(out) :: slab
        integer, intent(in) :: nx, ny, nz, rank, ranks
        integer :: i, j, k
        real(real64) :: x, y, z

        slab%nx = nx
        slab%ny = ny
        slab%nz = nz
        slab%first = int(int(nz, int64) * rank / ranks)
        slab%n = int(int(nz, int64) * (rank + 1) / ranks) - slab%first
        slab%below = modulo(rank - 1, ranks)
        slab%above = modulo(rank + 1, ranks)
        allocate (slab%now(nx, ny, 0:slab%n + 1), slab%next(nx, ny, 0:slab%n + 1))
        do k = 1, slab%n
            z = 2 * pi * (slab%first + k - 1) / nz
            do j = 1, ny
                y = 2 * pi * (j - 1) / ny
                do i = 1, nx
                    x = 2 * pi * (i - 1) / nx
                    slab%now(i, j, k) = 300 + 20 * sin(x) * cos(2 * y) + 5 * sin(3 * z + cos(x + y))
                end do
            end do
        end do
    end subroutine

    subroutine advance(slab)
        type(slab_t), intent(inout) :: slab
        integer :: i, j, k, west, east, south, north
        real(real64) :: around
        real(real64), allocatable :: swapped(:, :, :)

        call exchange(slab)
        do k = 1, slab%n
            do j = 1, slab%ny
                south = modulo(j - 2, slab%ny) + 1
                north = modulo(j, slab%ny) + 1
                do i = 1, slab%nx
                    west = merge(slab%nx, i - 1, i == 1)
                    east = merge(1, i + 1, i == slab%nx)
                    around = slab%now(west, j, k) + slab%now(east, j, k) + slab%now(i, south, k) + &
                             slab%now(i, north, k) + slab%now(i, j, k - 1) + slab%now(i, j, k + 1)
                    slab%next(i, j, k) = slab%now(i, j, k) + rate * (around - 6 * slab%now(i, j, k))
                end do
            end do
        end do
        call move_alloc(slab%now, swapped)
        call move_alloc(slab%next, slab%now)
        call move_alloc(swapped, slab%next)
    end subroutine

    subroutine exchange(slab)
        type(slab_t), intent(inout) :: slab
        integer :: plane, n, ierr

        plane = slab%nx * slab%ny
        n = slab%n
        call MPI_Sendrecv(slab%now(:, :, 1), plane, MPI_DOUBLE_PRECISION, slab%below, 0, slab%now(:, :, n + 1), &
                          plane, MPI_DOUBLE_PRECISION, slab%above, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE, ierr)
        call MPI_Sendrecv(slab%now(:, :, n), plane, MPI_DOUBLE_PRECISION, slab%above, 1, slab%now(:, :, 0), &
                          plane, MPI_DOUBLE_PRECISION, slab%below, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE, ierr)
    end subroutine

end module

program heat_xml
    use, intrinsic :: iso_fortran_env, only: error_unit, int64, output_unit
    use adios2
    use heat
    use mpi
    implicit none

    integer, parameter :: path_length = 4096
    character(len=path_length) :: output, config
    integer :: counts(5) = [64, 64, 64, 100, 50] ! nx, ny, nz, steps, interval
    integer :: rank, ranks, ierr

    call MPI_Init(ierr)
    call MPI_Comm_rank(MPI_COMM_WORLD, rank, ierr)
    call MPI_Comm_size(MPI_COMM_WORLD, ranks, ierr)
    call parse()
    call run(counts(1), counts(2), counts(3), counts(4), counts(5))
    call MPI_Finalize(ierr)

contains

    subroutine run(nx, ny, nz, steps, interval)
        integer, intent(in) :: nx, ny, nz, steps, interval
        type(slab_t) :: slab
        type(adios2_adios) :: adios
        type(adios2_io) :: io
        type(adios2_variable) :: temperature, step_number
        type(adios2_engine) :: engine
        integer :: step

        call start(slab, nx, ny, nz, rank, ranks)
        if (config == "-") then
            call adios2_init(adios, MPI_COMM_WORLD, ierr)
        else
            call adios2_init(adios, trim(config), MPI_COMM_WORLD, ierr)
        end if
        call check("adios2_init")
        call adios2_declare_io(io, adios, "heat", ierr)
        call check("adios2_declare_io")
        call adios2_define_variable(temperature, io, "temperature", adios2_type_dp, 3, int([nx, ny, nz], int64), &
                                    int([0, 0, slab%first], int64), int([nx, ny, slab%n], int64), &
                                    adios2_constant_dims, ierr)
        call check("adios2_define_variable")
        call adios2_define_variable(step_number, io, "step", adios2_type_integer8, ierr)
        call check("adios2_define_variable")
        call adios2_open(engine, io, trim(output), adios2_mode_write, ierr)
        call check("adios2_open")
        do step = 0, steps
            if (step > 0) call advance(slab)
            if (modulo(step, interval) /= 0) cycle
            call adios2_begin_step(engine, ierr)
            call check("adios2_begin_step")
            ! contiguous, so that the array itself is passed, and not a temporary copy
            call adios2_put(engine, temperature, slab%now(:, :, 1:slab%n), ierr)
            call check("adios2_put")
            if (rank == 0) call adios2_put(engine, step_number, int(step, int64), ierr)
            call check("adios2_put")
            call adios2_end_step(engine, ierr)
            call check("adios2_end_step")
            if (rank == 0) write (output_unit, '(a, i0, a, i0, 2a)') "step ", step, " of ", steps, " written to ", &
                trim(output)
        end do
        call adios2_close(engine, ierr)
        call check("adios2_close")
        call adios2_finalize(adios, ierr)
        call check("adios2_finalize")
    end subroutine

    ! Ends all ranks if ADIOS2's last call, which is named, failed; ADIOS2 has said why.
    subroutine check(name)
        character(len=*), intent(in) :: name
        integer :: ignored

        if (ierr == adios2_error_none) return
        write (error_unit, '(a, i0, 3a)') "heat_xml_fortran: rank ", rank, ": ", name, " failed"
        call MPI_Abort(MPI_COMM_WORLD, 1, ignored)
    end subroutine

    subroutine parse()
        integer :: n, i

        n = command_argument_count()
        if (n /= 1 .and. n /= 2 .and. n /= 7) then
            call refuse("usage: heat_xml_fortran OUTPUT [CONFIG [NX NY NZ STEPS INTERVAL]]")
        end if
        output = argument(1)
        config = "-"
        if (n > 1) config = argument(2)
        do i = 3, n
            counts(i - 2) = count_of(argument(i))
        end do
        if (counts(3) < ranks) call refuse("NZ is smaller than the number of ranks; use fewer ranks or a larger NZ")
        if (int(counts(1), int64) * counts(2) > huge(n)) call refuse("a plane of NX x NY cells is too large")
    end subroutine

    function argument(i) result(text)
        integer, intent(in) :: i
        character(len=path_length) :: text
        integer :: status

        call get_command_argument(i, text, status=status)
        if (status /= 0) call refuse("an argument is too long")
    end function

    function count_of(text) result(number)
        character(len=*), intent(in) :: text
        integer :: number, status

        status = verify(trim(text), "0123456789")
        if (status == 0) read (text, *, iostat=status) number
        if (status == 0) status = merge(0, 1, number >= 1 .and. number <= 1000000)
        if (status /= 0) call refuse("'" // trim(text) // "' is not a whole number from 1 to 1000000")
    end function

    ! The same on every rank.
    subroutine refuse(message)
        character(len=*), intent(in) :: message

        if (rank == 0) write (error_unit, '(2a)') "heat_xml_fortran: ", message
        call MPI_Finalize(ierr)
        stop 1, quiet=.true.
    end subroutine

end program
