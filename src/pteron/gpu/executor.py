"""A method on the GPU: buffers, bind groups and parameters are created once; commands follow the plan.

Every route of every node is compiled and bound at load, or some of them later, while calls already run (see
`late_kernels`). A call writes the changed parameters in one write,
encodes the commands of the current plan, and submits once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from pteron.errors import UnsupportedError
from pteron.gpu.buffers import Buffers
from pteron.gpu.device import BindGroup, Buffer, Command, Copy, Device, Pipeline, Submission
from pteron.gpu.idle_runs import IdleRuns
from pteron.gpu.late_kernels import LateKernels
from pteron.gpu.params import INTEGER_NBYTES, Parameters
from pteron.gpu.placement import Placement, is_zero
from pteron.gpu.staging import StagingPool
from pteron.gpu.state import State
from pteron.ir.dispatch import SOFTWARE, WIDE, Dispatch, Grid, Scratch
from pteron.ir.live import LiveInt, LiveTensor
from pteron.ir.values import Graph, Tensor, ValueId
from pteron.ops import kernel as kernels
from pteron.plan.late_routes import RouteKey, needed_first
from pteron.plan.memory import aligned, plan_memory
from pteron.plan.sweep import LiveGraph, NodePlan

# The target of a binding: ("uniform", offset, nbytes), or ("storage", a tensor's id or (node, scratch)).
Source: TypeAlias = tuple[Any, ...]

Progress: TypeAlias = Callable[[float, str], None]  # the finished share (0 to 1), and the name of the step
COMPILING = "compiling kernels"


@dataclass(slots=True, eq=False)
class Shader:
    """A kernel with its shader text and its pipeline. Nodes of the same form share it."""

    kernel: kernels.Kernel
    text: str
    pipeline: Pipeline = None  # None: not compiled yet

    def compile(self, device: Device) -> None:
        self.pipeline = device.pipeline(self.text, self.kernel.name, [b.kind for b in self.kernel.bindings])


@dataclass(slots=True, eq=False)
class Site:
    """One dispatch of one route of one node, with its shader and bind group."""

    label: str
    shader: Shader
    slot: int  # offset of its Params in the parameter buffer
    sources: list[Source]
    uses_state: bool
    group: BindGroup = None  # None: the state has the bind group, or the shader is not compiled yet

    @property
    def kernel(self) -> kernels.Kernel:
        return self.shader.kernel

    @property
    def pipeline(self) -> Pipeline:
        return self.shader.pipeline


@dataclass(slots=True)
class Launch:
    """A dispatch of a plan: its site, its parameters and its grid."""

    site: Site
    params: bytes
    grid: Grid


class Executor:
    """The GPU resources of a method."""

    def __init__(
        self,
        live: LiveGraph,
        device: Device,
        weights: Placement,
        progress: Progress | None = None,
        wait: bool = True,
    ) -> None:
        """progress: is told the share of the kernels that are compiled. Half of the work is in `warm_up`.

        wait: whether every route is compiled now. If not, `start` starts a thread that compiles the routes
        without which the method can run.
        """
        self.live = live
        self.graph = live.graph
        self.results = self.graph.results
        self.reads: tuple[Any, Any] = (None, {})  # the last plan of reads, and the shapes that it is for
        self.layout = live.layout
        self.device = device
        self._progress = progress
        self._wide = device.route_features >= {SOFTWARE, WIDE}
        self.weights = weights
        self.memory = plan_memory(self.graph, self.layout, live.scratch())
        self.params = Parameters(device.uniform_alignment)
        self.sites: list[Site] = []
        self._states = {self.layout.storage[t.id] for t in self.graph.states}
        self._site_of: dict[tuple[int, str, int], Site] = {}
        self._late_sites: dict[RouteKey, list[Site]] = {}  # for each late route, a site with each kernel
        self._idle: IdleRuns | None = None
        self.late: LateKernels | None = None  # None: all kernels were compiled at load
        self._version = 0  # of the list of commands; it counts the changes
        self._shown: list[list[tuple[Site, Grid]]] = [
            [] for _ in self.graph.nodes
        ]  # the commands of each node
        with weights.all_or_nothing(), Buffers(device) as owned:
            self._owned = owned
            self._constants = {t.id: weights.buffer(t) for t in used_constants(self.graph)}
            self.pristine = {  # the initial contents of states that do not begin with zeros
                t.id: weights.buffer(t)
                for t in self.graph.states
                if t.constant is not None and not is_zero(t)
            }
            self.activations = [
                owned.storage(nbytes, f"activation {i}") for i, nbytes in enumerate(self.memory.buffers)
            ]
            self._make_sites(wait)
            self._compile()
            self.params.allocate(owned)
            for site in self.sites:
                if site.pipeline is not None and not site.uses_state:
                    site.group = self.bind(site, None)
            self.staging = StagingPool(owned, sum(aligned(tensor.max_nbytes) for tensor in self.results))

    # -- load -----------------------------------------------------------------------------------

    def _make_sites(self, wait: bool) -> None:
        shaders: dict[tuple[int, str, int], Shader] = {}  # thirty equal layers have the same kernels
        late: dict[tuple[int, int, str], list[Site]] = {}
        for node, routes in zip(self.graph.nodes, self.live.routes, strict=True):
            form = self.live.form(node.index)
            first = {route.name for route in (routes if wait else needed_first(routes, self.live.wrong))}
            for rank, route in enumerate(routes):
                sites = []
                for number, dispatch in enumerate(route.dispatches):
                    key = (form, route.name, number)
                    if key not in shaders:
                        shaders[key] = self._shader(dispatch)
                    site = self._make_site(dispatch, shaders[key], node.index, f"{node.label}, {route.name}")
                    sites.append(site)
                    self._site_of[node.index, route.name, number] = site
                self.sites += sites
                if route.name not in first:
                    late.setdefault((rank, form, route.name), sites)
        # The best routes of all nodes come first.
        self._late_sites = {(form, name): late[rank, form, name] for rank, form, name in sorted(late)}

    def _shader(self, dispatch: Dispatch) -> Shader:
        kernel = kernels.load(dispatch.kernel, dispatch.defines)
        return Shader(kernel, shader_text(kernel, dispatch, self._wide))

    def _compile(self) -> None:
        """Compile all shaders but those of late routes."""
        late = {site.shader for sites in self._late_sites.values() for site in sites}
        shaders = dict.fromkeys(site.shader for site in self.sites if site.shader not in late)
        for number, shader in enumerate(shaders, 1):
            shader.compile(self.device)
            if self._progress:
                self._progress(number / len(shaders) / 2, COMPILING)

    def _make_site(self, dispatch: Dispatch, shader: Shader, node: int, label: str) -> Site:
        kernel = shader.kernel
        slot = self.params.take(kernel.params_nbytes)
        sources: list[Source] = []
        uses_state = False
        for binding in kernel.bindings:
            if binding.name == "p":
                sources.append(("uniform", slot, kernel.params_nbytes))
                continue
            bound = dispatch.bindings[binding.name]
            if isinstance(bound, LiveInt):
                sources.append(("uniform", self.params.integer(bound), INTEGER_NBYTES))
            elif isinstance(bound, LiveTensor):
                storage = self.layout.storage[bound.tensor.id]
                uses_state |= storage in self._states
                sources.append(("storage", storage))
            else:
                sources.append(("storage", (node, bound.name)))
        return Site(label, shader, slot, sources, uses_state)

    def bind(self, site: Site, state: State | None) -> BindGroup:
        def resolve(source: Source) -> tuple[Buffer, int, int]:
            if source[0] == "uniform":
                return (self.params.buffer, source[1], source[2])
            buffer = self._buffer_of(source[1], state)
            return (buffer, 0, buffer.size)

        return self.device.bind_group(site.pipeline, map(resolve, site.sources), site.label)

    def _buffer_of(self, storage: Any, state: State | None) -> Buffer:
        if storage in self._constants:
            return self._constants[storage]
        if state is not None and storage in state.buffers:
            return state.buffers[storage]
        return self.activations[self.memory.placement[storage]]

    def buffer(self, tensor: Tensor, state: State) -> Buffer:
        """The buffer that holds a tensor, for uploads and read-backs."""
        return self._buffer_of(self.layout.storage[tensor.id], state)

    def is_state(self, source: Source) -> bool:
        return source[0] == "storage" and source[1] in self._states

    def storage_buffer(self, storage: Any) -> Buffer:
        """The buffer of a constant or an activation."""
        return self._buffer_of(storage, None)

    def warm_up(self) -> None:
        """Run every pipeline once without work."""
        once = {site.pipeline: site for site in self.sites if site.pipeline is not None}
        if once:
            self._idle = IdleRuns(self)
            self._run_idle(self._idle, list(once.values()))
            if not self._late_sites:
                self._end_idle_runs()

    def _end_idle_runs(self) -> None:
        if self._idle is not None:
            self._idle.close()
            self._idle = None

    def _run_idle(self, idle: IdleRuns, sites: list[Site]) -> None:
        progress = self._progress
        if progress is None:
            idle.run(sites)
            return
        idle.run(sites, lambda count: progress(0.5 + count / len(sites) / 2, COMPILING))
        progress(1.0, COMPILING)

    def start(self) -> None:
        """Write the parameters of the plan at the largest shape. Then start to compile the late routes."""
        self.params.put_constants()
        self.live.stale_symints.update(map(ValueId, range(len(self.live.live))))
        self.live.stale_nodes.update(i for i, plan in enumerate(self.live.plans) if plan is not None)
        self.refresh()
        if self._late_sites and self._idle is not None:  # a node with late routes has other routes, too
            for key in self._late_sites:
                self.live.late.add(key)
            self.live.forget()  # the plan at the largest shape may use late routes
            self.late = LateKernels(self.live, self.device, self._idle, self._late_sites)
            self.late.start()

    # -- calls ----------------------------------------------------------------------------------

    def refresh(self) -> None:
        """Update the parameters after a sweep.

        The marks are cleared only after the new bytes are written. After an interrupt before that, the next
        call does all of this again.
        """
        live = self.live
        for value in live.stale_symints:
            integer = live.live[value]
            if isinstance(integer, int):
                self.params.put_integer(value, integer)
        for index in live.stale_nodes:
            plan = live.plans[index]
            assert plan is not None
            launches = self._launches(index, plan)
            for launch in launches:
                self.params.put(launch.site.slot, launch.params)
            # A change of parameters only, such as the start of a slice, changes no command.
            shown = [(launch.site, launch.grid) for launch in launches]
            if shown != self._shown[index]:
                self._version += 1
                self._shown[index] = shown
        self.params.flush(self.device)
        live.stale_symints.clear()
        live.stale_nodes.clear()

    def _launches(self, node: int, plan: NodePlan) -> list[Launch]:
        if plan.compiled is None:
            plan.compiled = [
                self._launch(node, plan.route, number, dispatch)
                for number, dispatch in enumerate(plan.dispatches)
            ]
        return plan.compiled  # type: ignore[no-any-return]

    def _launch(self, node: int, route: str, number: int, dispatch: Dispatch) -> Launch:
        site = self._site_of[node, route, number]
        if dispatch.packed is None:  # nodes with the same signature share their dispatches
            dispatch.packed = site.kernel.pack(dispatch.params)
        return Launch(site, dispatch.packed, dispatch.grid)

    def commands(self, state: State) -> list[Command]:
        """The commands of the current plan. A state caches its list until the plan changes."""
        version, commands = state.commands
        if version != self._version:
            version, commands = self._version, [self._command(launch, state) for _, launch in self.launched()]
            state.commands = version, commands
        return commands

    def launched(self) -> Iterator[tuple[int, Launch]]:
        """The launches of the current plan in order, each with its node's index."""
        for index, plan in enumerate(self.live.plans):
            assert plan is not None
            for launch in self._launches(index, plan):
                if 0 not in launch.grid:  # a tensor of size 0 needs no work
                    yield index, launch

    def _command(self, launch: Launch, state: State) -> Command:
        site = launch.site
        return self.device.command(site.pipeline, self._group(site, state), launch.grid)

    def _group(self, site: Site, state: State) -> BindGroup:
        """The bind group of a site. It is made at the first use if the shader was compiled late."""
        if site.uses_state:
            if site not in state.groups:
                state.groups[site] = self.bind(site, state)
            return state.groups[site]
        if site.group is None:
            site.group = self.bind(site, None)
        return site.group

    def run(self, state: State, before: Sequence[Copy], after: Sequence[Copy]) -> Submission:
        commands = self.commands(state)
        if before or commands or after:  # a method that only returns constants does not use the GPU
            return self.device.submit(before, commands, after)
        return None

    def run_and_stage(self, state: State, after: Sequence[Copy]) -> Submission:
        """Run, and copy to a staging buffer. If calls repeat, the next one is recorded now."""
        return state.ahead.submit(self.device, self._version, self.commands(state), after)

    def stop(self) -> None:
        """End the thread that compiles late routes."""
        if self.late is not None:
            self.late.stop()

    def close(self) -> None:
        self.stop()
        self._end_idle_runs()
        self.staging.close()
        self._owned.free()
        self.activations.clear()


def used_constants(graph: Graph) -> list[Tensor]:
    """The constants that calls read. The initial contents of states are not among them."""
    states = {t.id for t in graph.states}
    used = {v.id for node in graph.nodes for v in node.reads}
    used |= {tensor.id for tensor in graph.results}
    return [t for t in graph.tensors() if t.constant is not None and t.id in used and t.id not in states]


def shader_text(kernel: kernels.Kernel, dispatch: Dispatch, wide: bool = False) -> str:
    """The shader text of a dispatch. Bindings must match those of the file by name and type."""
    names = {b.name for b in kernel.bindings} - {"p"}
    if names != dispatch.bindings.keys():
        raise KeyError(
            f"kernel {kernel.name}: bindings are {sorted(names)}, the rule gave {sorted(dispatch.bindings)}"
        )
    dtypes = {}
    for name, bound in dispatch.bindings.items():
        if isinstance(bound, (LiveTensor, Scratch)):
            if not kernel.binding(name).accepts(bound.dtype):
                raise UnsupportedError(f"kernel {kernel.name}: binding {name} cannot hold {bound.dtype}")
            dtypes[name] = bound.dtype
    return kernels.source(kernel, dtypes, dispatch.defines, dispatch.code, wide)
