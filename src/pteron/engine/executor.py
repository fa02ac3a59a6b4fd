"""A method on the GPU: buffers, bind groups and parameters are created once; commands follow the plan.

Every route of every node is compiled and bound at load, or some of them later, while calls already run (see
`background_compiler`). A call writes the changed parameters in one write,
encodes the commands of the current plan, and submits once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self, TypeAlias
from weakref import WeakKeyDictionary

from pteron._util.progress import Progress
from pteron.compiler.ir.dispatch import SOFTWARE, WIDE, Dispatch, Grid, Number, Scratch
from pteron.compiler.ir.live import LiveInt, LiveTensor
from pteron.compiler.ir.values import Graph, Node, Tensor
from pteron.compiler.ops import kernel as kernels
from pteron.compiler.plan.deferred_routes import RouteKey, needed_first
from pteron.compiler.plan.fixed_nodes import fixed_nodes
from pteron.compiler.plan.memory import aligned, plan_memory
from pteron.compiler.plan.node_plan import NodePlan
from pteron.compiler.plan.sweep import LiveGraph
from pteron.engine.background_compiler import BackgroundCompiler
from pteron.engine.buffers import Buffers
from pteron.engine.devices.device import BindGroup, Buffer, Command, Copy, Device, Pipeline, Submission
from pteron.engine.kept_buffers import KeptBuffers
from pteron.engine.params import INTEGER_NBYTES, Parameters
from pteron.engine.record_ahead import RecordAhead
from pteron.engine.staging import StagingPool
from pteron.engine.state import State
from pteron.engine.state_memory import StateMemory
from pteron.engine.warm_up import WarmUp
from pteron.engine.weight_store import WeightStore
from pteron.errors import PteronError, UnsupportedError

# The target of a binding: ("uniform", offset, nbytes), or ("storage", a tensor's id or (node, scratch)).
Source: TypeAlias = tuple[Any, ...]

COMPILING = "compiling kernels"


@dataclass(slots=True, eq=False)
class Shader:
    """A kernel with its shader text and its pipeline. Nodes of the same form share it."""

    kernel: kernels.Kernel
    text: str
    params: bytes | None = None  # the only ones that the text is for
    pipeline: Pipeline = None  # None: not compiled yet

    def compile(self, device: Device) -> None:
        kinds = [b.kind for b in self.kernel.bindings]
        try:
            self.pipeline = device.pipeline(self.text, self.kernel.name, kinds)
        except PteronError as error:
            error.args = (kernels.explain(self.kernel, self.text, str(error)),)
            raise


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
    values: Mapping[str, Number]  # the parameters by name


@dataclass(slots=True)
class StateUse:
    """What a method keeps for calls with one state: bind groups, and the commands of the current plan."""

    groups: dict[Site, BindGroup]
    commands: list[Command] = field(default_factory=list)
    version: int = -1  # of the list of commands
    ahead: RecordAhead = field(default_factory=RecordAhead)


class Executor:
    """The GPU resources of a method."""

    def __init__(
        self,
        live: LiveGraph,
        device: Device,
        weights: WeightStore,
        progress: Progress | None = None,
        wait: bool = True,
        states: StateMemory | None = None,
    ) -> None:
        """progress: is told the share of the kernels that are compiled. Half of the work is in `warm_up`.

        wait: whether every route is compiled now. If not, a thread compiles the routes without which the
        method can run.

        states: what the states consist of, if the method shares them with others.
        """
        self.live = live
        self.graph = live.graph
        self.results = self.graph.results
        self.layout = live.layout
        self.device = device
        self._progress = progress
        self._wide = device.route_features >= {SOFTWARE, WIDE}
        self.weights = weights
        self.kept = KeptBuffers(device)
        self.memory = plan_memory(self.graph, self.layout, live.scratch())
        self.params = Parameters(device.uniform_alignment)
        self.sites: list[Site] = []
        self._site_of: dict[tuple[int, str, int], Site] = {}
        self._late_sites: dict[RouteKey, list[Site]] = {}  # for each late route, a site with each kernel
        self._idle: WarmUp | None = None
        self.late: BackgroundCompiler | None = None  # None: all kernels were compiled at load
        # Caches of what plans and dispatches become here, for as long as these live.
        self._launches_of: WeakKeyDictionary[NodePlan, list[Launch]] = WeakKeyDictionary()
        self._packed: WeakKeyDictionary[Dispatch, bytes] = WeakKeyDictionary()
        # What the parameters are for. None while they change: after an interrupt, they are put again.
        self._written_version = -1
        self._written_plans: list[NodePlan | None] = [None] * len(self.graph.nodes)
        # The commands of each node, and the version of them all, which counts the changes.
        self._shown: list[list[tuple[Site, Grid]]] = [[] for _ in self.graph.nodes]
        self._version = 0
        self._uses: WeakKeyDictionary[State, StateUse] = WeakKeyDictionary()
        self._shares_states = states is not None
        with weights.all_or_nothing(), Buffers(device) as owned:
            self._owned = owned
            self._constants = {t.id: weights.buffer(t) for t in used_constants(self.graph)}
            self.states = states or StateMemory([self.graph], device, weights)
            self._states = self.states.numbers(self.graph)
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

    def open(self) -> Self:
        """Make the first state, run every kernel once, and write the parameters. Frees all if this fails."""
        try:
            first = self.states.first()
            if first is not None:
                self.use(first)
            self.warm_up()
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    # -- load -----------------------------------------------------------------------------------

    def _make_sites(self, wait: bool) -> None:
        shaders: dict[tuple[int, str, int, bool], Shader] = {}  # thirty equal layers have the same kernels
        fixed = fixed_nodes(self.graph) if wait else frozenset()  # nodes of one form share late kernels
        late: dict[tuple[int, int, str], list[Site]] = {}
        for node, routes in zip(self.graph.nodes, self.live.routes, strict=True):
            form = self.live.form(node.index)
            first = {route.name for route in (routes if wait else needed_first(routes, self.live.wrong))}
            for rank, route in enumerate(routes):
                sites = []
                for number, dispatch in enumerate(route.dispatches):
                    key = (form, route.name, number, node.index in fixed)
                    if key not in shaders:
                        shaders[key] = self._shader(dispatch, node.index in fixed)
                    site = self._make_site(dispatch, shaders[key], node.index, f"{node.label}, {route.name}")
                    sites.append(site)
                    self._site_of[node.index, route.name, number] = site
                self.sites += sites
                if route.name not in first:
                    late.setdefault((rank, form, route.name), sites)
        # The best routes of all nodes come first.
        self._late_sites = {(form, name): late[rank, form, name] for rank, form, name in sorted(late)}

    def _shader(self, dispatch: Dispatch, fixed: bool) -> Shader:
        kernel = kernels.load(dispatch.kernel, dispatch.defines, self._wide)
        text = shader_text(kernel, dispatch)
        if not fixed:
            return Shader(kernel, text)
        params = kernel.pack(dispatch.params)
        return Shader(kernel, kernels.with_params(kernel, text, params), params)

    def _compile(self) -> None:
        """Compile all shaders but those of late routes."""
        late = {site.shader for sites in self._late_sites.values() for site in sites}
        shaders = dict.fromkeys(site.shader for site in self.sites if site.shader not in late)
        for number, shader in enumerate(shaders, 1):
            shader.compile(self.device)
            if self._progress:
                self._progress(COMPILING, number / len(shaders) / 2, 1.0)

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
        if state is not None and storage in self._states:
            return state.buffers[self._states[storage]]
        return self.activations[self.memory.placement[storage]]

    def buffer(self, tensor: Tensor, state: State) -> Buffer:
        """The buffer that holds a tensor, for uploads and read-backs."""
        return self._buffer_of(self.layout.storage[tensor.id], state)

    def bound(self, site: Site, source: Source, state: State) -> tuple[str, Buffer, int, int, bytes | None]:
        """What a site binds: the role, the buffer, offset and bytes in it, and the contents of a uniform."""
        if source[0] == "uniform":
            _, offset, nbytes = source
            role = "parameters" if offset == site.slot else "integer"
            return role, self.params.buffer, offset, nbytes, self.params.contents(offset, nbytes)
        storage = source[1]
        buffer = self._buffer_of(storage, state)
        if storage in self._constants:
            role = "constant"
        elif storage in self._states:
            role = "state"
        else:
            role = "scratch" if isinstance(storage, tuple) else "activation"
        return role, buffer, 0, buffer.size, None

    def compiled(self) -> Iterator[tuple[int, str, Shader]]:
        """The shaders of all routes: (node, route, shader)."""
        for (node, route, _), site in self._site_of.items():
            yield node, route, site.shader

    def is_state(self, source: Source) -> bool:
        return source[0] == "storage" and source[1] in self._states

    def storage_buffer(self, storage: Any) -> Buffer:
        """The buffer of a constant or an activation."""
        return self._buffer_of(storage, None)

    def warm_up(self) -> None:
        """Run every pipeline once without work."""
        once = {site.pipeline: site for site in self.sites if site.pipeline is not None}
        if once:
            self._idle = WarmUp(self)
            self._run_once(self._idle, list(once.values()))
            if not self._late_sites:
                self._end_warm_up()

    def _end_warm_up(self) -> None:
        if self._idle is not None:
            self._idle.close()
            self._idle = None

    def _run_once(self, idle: WarmUp, sites: list[Site]) -> None:
        progress = self._progress
        if progress is None:
            idle.run(sites)
            return
        idle.run(sites, lambda count: progress(COMPILING, 0.5 + count / len(sites) / 2, 1.0))
        progress(COMPILING, 1.0, 1.0)

    def start(self) -> None:
        """Write the parameters of the plan at the largest shape. Then start to compile the late routes."""
        self.params.put_constants()
        self.refresh()
        if self._late_sites and self._idle is not None:  # a node with late routes has other routes, too
            for key in self._late_sites:
                self.live.late.add(key)
            self.live.forget()  # the plan at the largest shape may use late routes
            self.late = BackgroundCompiler(self.live, self.device, self._idle, self._late_sites)
            self.late.start()

    # -- calls ----------------------------------------------------------------------------------

    def refresh(self) -> None:
        """Write the parameters of plans and integers that have changed since the last time.

        The version is noted only afterwards: after an interrupt, the next call does all of this again.
        """
        live = self.live
        if self._written_version == live.version:
            return
        version = live.version
        if self._written_plans != live.plans:
            for index, plan in enumerate(live.plans):
                if plan is not None and plan is not self._written_plans[index]:
                    self._put(index, plan)
        self.params.put_integers(live.current)
        self.params.flush(self.device)
        self._written_version = version

    def _put(self, index: int, plan: NodePlan) -> None:
        launches = self._launches(index, plan)
        self._written_plans[index] = None  # until all is put
        for launch in launches:
            self.params.put(launch.site.slot, launch.params)
        # A change of parameters only, such as the start of a slice, changes no command.
        shown = [(launch.site, launch.grid) for launch in launches]
        if shown != self._shown[index]:
            self._version += 1
            self._shown[index] = shown
        self._written_plans[index] = plan

    def _launches(self, node: int, plan: NodePlan) -> list[Launch]:
        launches = self._launches_of.get(plan)
        if launches is None:
            launches = self._launches_of[plan] = [
                Launch(site := self._site_of[node, plan.route, number], self._pack(site, d), d.grid, d.params)
                for number, d in enumerate(plan.dispatches)
            ]
        return launches

    def sites_of(self, node: Node, plan: NodePlan) -> list[Site]:
        """The site of each dispatch of a plan."""
        return [self._site_of[node.index, plan.route, number] for number in range(len(plan.dispatches))]

    def _pack(self, site: Site, dispatch: Dispatch) -> bytes:
        """The bytes of the parameters. Nodes with the same signature share their dispatches."""
        packed = self._packed.get(dispatch)
        if packed is None:
            packed = self._packed[dispatch] = site.kernel.pack(dispatch.params)
        assert site.shader.params in (None, packed), f"{site.label} is for other sizes"
        return packed

    def launches(self, node: int) -> list[Launch]:
        """The launches of a node in the current plan."""
        plan = self.live.plans[node]
        assert plan is not None
        # A tensor of size 0 needs no work.
        return [launch for launch in self._launches(node, plan) if 0 not in launch.grid]

    def launched(self) -> Iterator[tuple[int, Launch]]:
        """The launches of the current plan in order, each with its node's index."""
        for index in range(len(self.graph.nodes)):
            for launch in self.launches(index):
                yield index, launch

    def use(self, state: State) -> StateUse:
        """Return what calls with a state need. Make its bind groups at its first use."""
        use = self._uses.get(state)
        if use is None:
            sites = [site for site in self.sites if site.uses_state and site.pipeline is not None]
            use = self._uses[state] = StateUse({site: self.bind(site, state) for site in sites})
        return use

    def _commands(self, use: StateUse, state: State) -> list[Command]:
        """The commands of the current plan."""
        if use.version != self._version:
            use.commands = [self.command(launch, state) for _, launch in self.launched()]
            use.version = self._version
        return use.commands

    def command(self, launch: Launch, state: State) -> Command:
        site = launch.site
        return self.device.command(site.pipeline, self.group(site, state), launch.grid)

    def group(self, site: Site, state: State) -> BindGroup:
        """The bind group of a site. It is made at the first use if the shader was compiled late."""
        if site.uses_state:
            groups = self.use(state).groups
            if site not in groups:
                groups[site] = self.bind(site, state)
            return groups[site]
        if site.group is None:
            site.group = self.bind(site, None)
        return site.group

    def run(self, state: State, before: Sequence[Copy], after: Sequence[Copy]) -> Submission:
        commands = self._commands(self.use(state), state)
        if before or commands or after:  # a method that only returns constants does not use the GPU
            return self.device.submit(before, commands, after)
        return None

    def run_and_stage(self, state: State, after: Sequence[Copy]) -> Submission:
        """Run, and copy to a staging buffer. If calls repeat, the next one is recorded now."""
        use = self.use(state)
        return use.ahead.submit(self.device, self._version, self._commands(use, state), after)

    def stop(self) -> None:
        """End the thread that compiles late routes."""
        if self.late is not None:
            self.late.stop()

    def close(self) -> None:
        """Free everything, also the states, unless other methods share them."""
        if not self._shares_states:
            self.states.close()
        self.stop()
        self._end_warm_up()
        self.staging.close()
        self.kept.close()
        self._uses.clear()
        self._owned.free()
        self.activations.clear()


def used_constants(graph: Graph) -> list[Tensor]:
    """The constants that calls read. The initial contents of states are not among them."""
    states = {t.id for t in graph.states}
    used = {v.id for node in graph.nodes for v in node.reads}
    used |= {tensor.id for tensor in graph.results}
    return [t for t in graph.tensors() if t.constant is not None and t.id in used and t.id not in states]


def shader_text(kernel: kernels.Kernel, dispatch: Dispatch) -> str:
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
    return kernels.source(kernel, dtypes, dispatch.defines, dispatch.code)
