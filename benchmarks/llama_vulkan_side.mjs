// The side of llama.cpp on Vulkan (node-llama-cpp): SmolLM2 from its GGUF file. See worker.py for the commands.
import { readFileSync } from "node:fs";
import { createInterface } from "node:readline";
import { pathToFileURL } from "node:url";

const CONTEXT = 512;
const PREFILL = 128;

class Unsupported extends Error {}

/** The package, and its version. It is not beside this file, so it is imported by its path. */
async function library() {
    const folder = `${process.env.PTERON_BENCH_NODE}/node_modules/node-llama-cpp`;
    try {
        const { version, main } = JSON.parse(readFileSync(`${folder}/package.json`, "utf8"));
        return { version, ...(await import(pathToFileURL(`${folder}/${main}`))) };
    } catch (error) {
        throw new Unsupported(`node-llama-cpp is not installed: see scripts/bench_peers.sh (${error.message})`);
    }
}

let sequence = null;
let call = null;

async function open() {
    const modelPath = process.env.PTERON_BENCH_GGUF;
    if (!modelPath) throw new Unsupported("SmolLM2 is not installed: see scripts/bench_peers.sh");
    const { getLlama } = await library();
    process.env.GGML_VK_VISIBLE_DEVICES ??= "0"; // llama.cpp uses a software adapter only if it is named
    const llama = await getLlama({ gpu: "vulkan", build: "never", skipDownload: true, logLevel: "error" });
    if (!(await llama.getGpuDeviceNames()).length) throw new Unsupported("llama.cpp finds no Vulkan device");
    const model = await llama.loadModel({ modelPath, gpuLayers: "max" });
    const context = await model.createContext({ contextSize: CONTEXT, batchSize: PREFILL });
    return context.getSequence();
}

async function prepare({ kind, sizes }) {
    if (kind !== "llm") throw new Unsupported("it runs language models only");
    sequence ??= await open();
    const { past, s: length } = sizes;
    const tokens = Array.from({ length: past + length }, (_, i) => 1000 + 7 * i);
    await sequence.clearHistory();
    if (past > 0) await sequence.evaluateWithoutGeneratingNewTokens(tokens.slice(0, past));
    call = async () => {
        await sequence.eraseContextTokenRanges([{ start: past, end: sequence.nextTokenIndex }]);
        for await (const _ of sequence.evaluate(tokens.slice(past), { temperature: 0 })) break;
    };
    await call();
    return {};
}

async function run({ calls, seconds }) {
    const cpu_ms = [], wall_ms = [];
    const begin = performance.now();
    const enough = () => (calls ? cpu_ms.length >= calls : cpu_ms.length && performance.now() - begin >= 1000 * seconds);
    while (!enough()) {
        const cpu = process.cpuUsage(), wall = performance.now();
        await call();
        const { user, system } = process.cpuUsage(cpu);
        cpu_ms.push((user + system) / 1000);
        wall_ms.push(performance.now() - wall);
    }
    return { cpu_ms, wall_ms };
}

const commands = {
    facts: async () => ({ version: `llama.cpp (node-llama-cpp ${(await library()).version})`, adapter: "Vulkan" }),
    prepare,
    run,
};

for await (const line of createInterface({ input: process.stdin })) {
    const command = JSON.parse(line);
    let answer;
    try {
        answer = await commands[command.do](command);
    } catch (error) {
        answer = { error: error instanceof Unsupported ? error.message : `${error}` };
    }
    process.stdout.write(JSON.stringify(answer) + "\n");
}
process.exit(0);
