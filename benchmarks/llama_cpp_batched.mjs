// llama.cpp's side of `benchmarks.batched`: several sequences decode at the same time, in one batch per step.
//
//     node llama_cpp_batched.mjs FOLDER_WITH_NODE_MODULES '{"model": "m.gguf", "gpu": "vulkan", "counts": [1, 8],
//         "tokens": 16, "repetitions": 3}'
//
// It writes a line of JSON for each count: the CPU seconds of each repetition, in all threads of the process.
import {join, resolve} from "node:path";
import {pathToFileURL} from "node:url";

const [folder, text] = process.argv.slice(2);
const task = JSON.parse(text);
const main = join(resolve(folder), "node_modules", "node-llama-cpp", "dist", "index.js");
process.env.GGML_VK_VISIBLE_DEVICES ??= "0";  // llama.cpp uses a software adapter only if it is named
const {getLlama} = await import(pathToFileURL(main));

const llama = await getLlama({
    gpu: task.gpu || false, build: "never", skipDownload: true, maxThreads: 1, logLevel: "error",
});
if (task.gpu && !(await llama.getGpuDeviceNames()).length) throw new Error(`llama.cpp has no ${task.gpu} here`);
const model = await llama.loadModel({modelPath: task.model, gpuLayers: task.gpu ? "max" : 0});

for (const count of task.counts) {
    const context = await model.createContext({
        sequences: count, contextSize: 128, batchSize: 64, threads: 1,
        batching: {dispatchSchedule: "nextCycle"},
    });
    const answers = Array.from({length: count}, (_, number) =>
        context.getSequence().evaluate([1 + number], {temperature: 0, yieldEogToken: true})
    );
    // All answers ask for a token before one of them gets it, so that they are in one batch.
    const step = async () => { await Promise.all(answers.map((answer) => answer.next())); };
    const steps = async (times) => { for (let i = 0; i < times; i++) await step(); };
    await steps(4);  // the first step compiles
    const cpu = [];
    for (let i = 0; i < task.repetitions; i++) {
        const before = process.cpuUsage();
        await steps(task.tokens);
        const {user, system} = process.cpuUsage(before);
        cpu.push((user + system) / 1e6);
    }
    console.log(JSON.stringify({count, tokens: count * task.tokens, cpu_seconds: cpu}));
    await context.dispose();
}
process.exit(0);
