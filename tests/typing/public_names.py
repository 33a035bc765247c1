"""A program that uses every public name; mypy and pyright check it in strict mode (test_typing.py)."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any, TypedDict

import pegboard
from pegboard import (
    Accepted,
    Answer,
    Assertion,
    Audio,
    Auth,
    Board,
    Caller,
    CancellationToken,
    Cancelled,
    Cardinality,
    Client,
    ClientCredentials,
    Context,
    Declined,
    Description,
    Elicit,
    EnumConstraint,
    File,
    Gateway,
    Group,
    Header,
    HttpRequest,
    HttpResponse,
    Image,
    Introspection,
    InvalidArguments,
    InvalidParams,
    Issuer,
    JsonRpcMessage,
    Limits,
    Link,
    MaxLength,
    Middleware,
    MinLength,
    NestedResult,
    NextAction,
    OAuth,
    Parameter,
    ParseError,
    ParseWarning,
    Pattern,
    PegboardError,
    Principal,
    Quota,
    Quotas,
    Range,
    Refusal,
    Request,
    Root,
    Roots,
    Sample,
    Sampled,
    SignInClient,
    Tool,
    ToolCallRequest,
    ToolCatalog,
    ToolConnector,
    ToolError,
    ToolExecutionBatch,
    ToolExecutionContext,
    ToolExecutionRecord,
    ToolExecutor,
    ToolResponse,
    ToolResult,
    TrustedProxy,
    ValueKind,
    errors,
    schema_of,
    tool,
)
from pegboard.client import (
    BrowserLogin,
    CallResult,
    Change,
    ClientAuth,
    ContentBlock,
    Elicitation,
    FileStorage,
    Login,
    MemoryStorage,
    OnElicit,
    OnLog,
    OnSample,
    Progress,
    PromptArgument,
    PromptDefinition,
    PromptMessage,
    Redirect,
    ResourceContents,
    ResourceDefinition,
    Storage,
    Target,
    TemplateDefinition,
    ToolDefinition,
)
from pegboard.gateway import (
    GatewayConfig,
    Logins,
    ServerConfig,
    ToolboxConfig,
    ToolName,
    join_name,
    parse_name,
    read_config,
)
from pegboard.middleware import (
    Around,
    Audit,
    Budget,
    Cache,
    Call,
    ConcurrencyLimit,
    Done,
    ErrorMessage,
    ErrorMessages,
    Estimate,
    EstimateTally,
    Handler,
    HelperProcess,
    History,
    InputRequired,
    KeptResults,
    Logging,
    MemoryRates,
    Metrics,
    Observation,
    Question,
    RateLimit,
    RateStore,
    RedisRates,
    Reply,
    ResponseModes,
    Retry,
    Subscribed,
    Suggestion,
    Suggestions,
    TaskStarted,
    Timeout,
    Timing,
    TokenBudget,
    TokenCount,
    Tracing,
    answer,
    count_tokens,
    estimate_tokens,
    mask,
)
from pegboard.providers import (
    FORMATS,
    READERS,
    Definition,
    Export,
    ExportOptions,
    Provider,
    TokenUsage,
    export,
    export_tools,
)
from pegboard.testing import (
    Expectation,
    FakeCall,
    FakeClock,
    FakeRates,
    FakeServer,
    MemoryServer,
    Recorder,
    Recording,
    Run,
    Step,
    expect,
    fake_gateway,
    fixed_tokens,
    make_call,
    run_alone,
)

board = Board(
    "shop",
    version=pegboard.__version__,
    instructions="Sells things.",
    limits=Limits(calls=100),
    arguments="strict",
    auth=fixed_tokens({}),
)
group: Group = board.group("orders")
parts: ToolName | None = parse_name(join_name("dev", "files", "read_file"))


@board.route("/orders/{number}", methods=["POST"])
async def receive(request: HttpRequest) -> HttpResponse:
    return HttpResponse(request.body, status=202)


@board.tool
async def order_again(ctx: Context) -> str:
    result: NestedResult = await ctx.call("order", {"item": "tea", "count": 1})
    return result.text


@board.tool(title="Order", tags={"shop"}, category="orders", timeout=10)
async def order(
    item: Annotated[str, Description("What to order"), MinLength(1), MaxLength(80), Pattern("[a-z]+")],
    count: Annotated[int, Range(1, 10)],
    region: Annotated[str, EnumConstraint(["eu", "us"]), Header("Region")],
    ctx: Context,
) -> str:
    sure: Answer[bool] = await ctx.elicit(f"Order {count} of {item}?", bool, key="sure")
    match sure:
        case Accepted(content):
            await ctx.progress(1, 2, "half")
            await ctx.log("info", {"sure": content})
        case Declined() | Cancelled():
            raise ToolError("The user does not want it.")
    sampled: Sampled = await ctx.sample(
        ["Name it", Image(b"", mime_type="image/png")], max_tokens=10, system="Be brief"
    )
    roots: list[Root] = await ctx.roots()
    both = await ctx.ask(sure=Elicit("Sure?", bool), text=Sample("Hello"), where=Roots())
    caller: Caller = ctx.caller
    await ctx.resource_changed("orders://all")
    return f"{region} {sampled.text} {roots[0].uri} {both['sure']} {caller.principal.id}"


class Order(TypedDict):
    item: str


@group.prompt
def confirm(request: Request[Order]) -> str:
    return request.args["item"]


@group.tool("all")
def list_orders(token: CancellationToken, ctx: Context) -> list[str]:
    if not token.cancelled and isinstance(ctx.wait(ctx.elicit("All?", bool)), Accepted):
        return ["one"]
    return []


@board.tool
async def stream(wire: ToolConnector) -> None:
    async for chunk in wire:
        await wire.write(chunk)


@tool
def media(message: JsonRpcMessage) -> list[Audio | File | Link]:
    if message.get("fail"):
        raise InvalidArguments("No.", [ParseError("fail", "custom", "fail: must be false", True)])
    return [Audio(b"", mime_type="audio/wav"), File(text="a", name="a.txt"), Link("https://example.com", name="Home")]


@board.tool(input_schema={"type": "object"})
def explicit(message: JsonRpcMessage) -> JsonRpcMessage:
    return ToolResponse.success(message.id, schema_of(dict[str, int]))


class Search(Tool):
    """Searches."""

    name = "search"
    parameters = (Parameter("query", ValueKind.STRING, Cardinality.SINGLE, description="What to find"),)

    def execute(self, context: ToolExecutionContext, /) -> ToolResult:
        request: ToolCallRequest = context.request
        warnings: tuple[ParseWarning, ...] = request.warnings
        return ToolResult(f"{request.tool_name} {len(warnings)}", structured={"found": 0}, is_error=False)


board.add(Search())
board.discover(__name__)


@board.resource("orders://{number}", mime_type="text/plain")
def read_order(number: int) -> str:
    if number < 0:
        raise errors.ResourceNotFound(f"orders://{number}")
    return "an order"


@board.prompt("thank", title="Thank a customer")
def thank(name: str) -> str:
    return f"Thank {name}."


@board.complete("thank", "name")
def names(value: str) -> list[str]:
    return [value]


class Watch(Middleware):
    order = 20

    async def before(self, call: Call) -> None:
        print(call.tool.name if call.known else call.method, mask(call.arguments), call.principal.id)

    async def after(self, call: Call, result: Mapping[str, Any], elapsed_ms: float) -> None:
        print(result.get("isError"), elapsed_ms, call.warnings)

    async def error(self, call: Call, exception: BaseException, elapsed_ms: float) -> None:
        print(type(exception), elapsed_ms, call.state)

    def observe(self, call: Call, seen: Observation) -> None:
        print(call.name, seen.outcome, seen.seconds)


async def around(call: Call, proceed: Handler) -> Reply:
    if call.method != "tools/call":
        return answer("No.")
    reply = await proceed(call.with_arguments({**call.arguments, "count": 1}))
    match reply:
        case Done():
            return reply
        case InputRequired():
            questions: Mapping[str, Question] = reply.questions
            print(questions)
        case TaskStarted() | Subscribed():
            print(reply.result)
    return reply


first: Around = around
kept = KeptResults(seconds=60)
rates: list[RateStore] = [MemoryRates(), FakeRates(FakeClock())]
board.use(
    Watch(), first, Logging(), Timing(slow_ms=100), TokenCount(count_tokens), Metrics(), Tracing(), History(calls=100)
)
board.use(RateLimit(10, "minute", by="tool", store=rates[0]), ConcurrencyLimit(2, wait=1), Timeout(5), tag="shop")
board.use(RateLimit(10, store=RedisRates("redis://localhost")), group="orders")
board.use(TokenBudget(Budget(100, "truncate"), kept=kept, counter=estimate_tokens), Cache(60), Retry(2), tool="search")
fitting = TokenBudget(modes=ResponseModes(summary=500), estimate={"search": Estimate(50, {"rows": 20})})
tallies: Mapping[str, EstimateTally] = fitting.stats()
board.use(fitting, Suggestions({"search": Suggestion(("Few were found.",), "order")}))
board.use(HelperProcess(["search-engine"], health="tcp://127.0.0.1:9200", wait=1), tool="search")
board.use(Audit(Path("audit"), arguments="hash", names=["iban"]), category="orders", order=1)


class Elsewhere:
    """A login without a browser."""

    uri = "https://example.com/callback"

    @asynccontextmanager
    async def opened(self, registered: str | None) -> AsyncGenerator[Redirect, None]:
        yield self

    async def visit(self, url: str) -> str:
        return url


def fill_in(asked: Elicitation) -> Mapping[str, Any] | None:
    return {"value": True} if "value" in asked.schema.get("properties", {}) else None


def show(done: float, total: float | None, message: str | None) -> None:
    print(done, total, message)


def sample(params: Mapping[str, Any]) -> str:
    return str(params["messages"])


def log(level: str, data: object) -> None:
    print(level, data)


async def use_servers() -> None:
    on_elicit: OnElicit = fill_in
    on_sample: OnSample = sample
    on_log: OnLog = log
    progress: Progress = show
    login: Login = Elsewhere()
    storage: Storage = FileStorage(Path("logins"), "sixteen characters") if pegboard.__version__ else MemoryStorage()
    logins: list[ClientAuth] = [
        OAuth(login=login, storage=storage, scopes=["tools"]),
        OAuth(login=BrowserLogin(port=7000, browser=False)),
        ClientCredentials("id", "secret"),
        Assertion("id", lambda issuer, resource: issuer + resource),
    ]
    targets: list[Target] = [board, "https://example.com/mcp", ["python", "server.py"], {"command": "python"}]
    for target, auth in zip(targets, logins, strict=True):
        async with Client(
            target, auth=auth, elicit=on_elicit, sample=on_sample, log=on_log, roots=["file:///"], limits=Limits()
        ) as client:
            tools: list[ToolDefinition] = await client.list_tools()
            resources: list[ResourceDefinition] = await client.list_resources()
            templates: list[TemplateDefinition] = await client.list_templates()
            prompts: list[PromptDefinition] = await client.list_prompts()
            arguments: list[PromptArgument] = [*prompts[0].get("arguments", ())]
            contents: list[ResourceContents] = await client.read(resources[0]["uri"])
            messages: list[PromptMessage] = await client.prompt("thank", {arguments[0]["name"]: "Ann"})
            print(templates[0]["uriTemplate"], contents[0].get("text"), messages[0]["content"])
            result: CallResult = await client.call(tools[0]["name"], {"item": "apple"}, progress=progress, timeout=5)
            blocks: list[ContentBlock] = result.content
            number: int = await client.call("count", result_type=int)
            print(result.text, result.structured, blocks[0]["type"], number)
            change: Change
            async for change in client.listen(tools=True, uris=["orders://1"]):
                print(change.kind, change.uri)
            await client.complete({"type": "ref/prompt", "name": "thank"}, "name", "A")


def serve_many(path: Path) -> Gateway:
    config: GatewayConfig = read_config(path)
    toolboxes: Mapping[str, ToolboxConfig] = config.toolboxes
    servers: list[ServerConfig] = [server for toolbox in toolboxes.values() for server in toolbox.servers.values()]
    name: ToolName | None = parse_name(join_name("dev", servers[0].name, "read"))
    print(name.tool if name is not None else "")
    gateway = Gateway(config, mode="all", limits=Limits(parked=10), boards={"shop": board}, logins=Logins())
    gateway.use(Timing(), toolbox="dev")
    return gateway


async def embed() -> None:
    catalog = ToolCatalog([Search()])
    executor = ToolExecutor(catalog, environment={"user": "Ada"})
    provider = Provider("anthropic", catalog, ExportOptions(strict=False))
    definitions: list[Definition] = provider.definitions
    usage: TokenUsage | None = provider.usage({})
    print(usage)
    exported: Export = export_tools(catalog, "openai")
    print(definitions, exported.notes, export(catalog, "markdown"), sorted(FORMATS), sorted(READERS))
    batch: ToolExecutionBatch = await executor.execute_batch(provider.parse({"content": []}))
    record: ToolExecutionRecord = batch.records[0]
    print(record.status, record.text_with_warnings())


async def try_middleware() -> None:
    recorder = Recorder()
    print(Auth(verify=lambda token: None, public_url="https://tools.example", scopes={"notes.read"}).public_url)
    proxy = TrustedProxy(["127.0.0.1"], "X-Client-Dn", issuer=None, prefix="proxy:")
    asked = Introspection("tools", "secret", url=None, seconds=30)
    issuer = Issuer("https://idp.example", ["x"], None, "sub", "scope", "roles", prefix="", introspection=asked)
    browser = SignInClient("pegboard", client_secret="secret", scopes=["profile"])
    quotas = Quotas(everyone=Quota(rate="600/minute", calls=8), roles={"batch": Quota(rate=None)})
    print(browser.client_id, quotas.everyone.calls)
    print(Auth(issuers=[issuer], keys=True, proxy=proxy, implies={"a": ["b"]}).issuers)
    nurse = Principal("nina", scopes=frozenset({"notes.write"}), roles=frozenset({"nurse"}), claims={}, kind="token")
    print(make_call(principal=nurse).principal.scopes)
    run: Run = await run_alone(Watch(), recorder, call=make_call("search", {"query": "a"}, principal="ann"))
    step: Step = recorder.steps[0]
    print(run.text, step.hook)


def explain(problem: PegboardError) -> str:
    match problem:
        case InvalidParams() | Refusal():
            return f"{problem.code} {problem.message}"
        case errors.ServerFault():
            return "the server failed"
        case errors.SetupError() | errors.DeclarationError():
            return "fix the configuration"
        case _:
            return str(problem)


fake = FakeServer("files", {"read": "text"})
seen: list[FakeCall] = fake.calls
recording = Recording("calls.json")
board.use(recording, ErrorMessages({"*": ErrorMessage(steps=("Try again",), try_tool=NextAction("list_files"))}))


async def test_files() -> None:
    async with Client(fake_gateway("gateway.json", {"files": fake})) as client:
        checked: Expectation = expect(await client.call("read")).ok()
        assert checked.result.text
    async with Client(MemoryServer(board)) as client:
        await client.list_tools()
