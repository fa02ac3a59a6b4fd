// A Vulkan layer with two tasks.
//
// 1. It writes down what the driver's compiler says. For every compute pipeline, the folder $GPU_MODEL_CAPTURE gets
//    N.<name>.txt (the compiler's texts, among them the assembly) and a line in pipelines.jsonl with all statistics of
//    VK_KHR_pipeline_executable_properties, which is switched on.
// 2. It gives "null hardware" what it lacks. RADV_FORCE_FAMILY makes a device without a GPU, which compiles but has no
//    memory, and no working semaphores and fences. Here memory is host memory, semaphores and fences are counters, and
//    commands do nothing. So wgpu can open such a device.
//
// A process opens one device, and compiles in one thread.

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <vulkan/vk_icd.h>
#include <vulkan/vk_layer.h>
#include <vulkan/vulkan.h>

static PFN_vkGetInstanceProcAddr next_instance_proc;
static PFN_vkGetDeviceProcAddr next_device_proc;
static PFN_vkGetPhysicalDeviceMemoryProperties next_memory_properties;
static PFN_vkGetPhysicalDeviceMemoryProperties2 next_memory_properties2;
static VkInstance the_instance;
static VkDevice the_device;
static int is_null_hardware, pipeline_count;

#define NEXT(name) ((PFN_##name)next_device_proc(the_device, #name))

static const void *find_in(const void *chain, VkStructureType type) {
    for (const VkBaseInStructure *at = chain; at; at = at->pNext)
        if (at->sType == type) return at;
    return NULL;
}

// -- what the compiler says ----------------------------------------------------------------------------------------

static FILE *open_output(const char *name, const char *mode) {
    const char *folder = getenv("GPU_MODEL_CAPTURE");
    char path[4096];
    if (!folder) return NULL;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return fopen(path, mode);
}

static void put_statistics(FILE *file, const VkPipelineExecutableInfoKHR *which) {
    uint32_t count = 0;
    NEXT(vkGetPipelineExecutableStatisticsKHR)(the_device, which, &count, NULL);
    VkPipelineExecutableStatisticKHR *found = calloc(count + 1, sizeof *found);
    for (uint32_t i = 0; i < count; i++) found[i].sType = VK_STRUCTURE_TYPE_PIPELINE_EXECUTABLE_STATISTIC_KHR;
    NEXT(vkGetPipelineExecutableStatisticsKHR)(the_device, which, &count, found);
    for (uint32_t i = 0; i < count; i++) {
        fprintf(file, "%s\"%s\":", i ? "," : "", found[i].name);
        if (found[i].format == VK_PIPELINE_EXECUTABLE_STATISTIC_FORMAT_FLOAT64_KHR) fprintf(file, "%g", found[i].value.f64);
        else fprintf(file, "%lld", (long long)found[i].value.i64);
    }
    free(found);
}

static void write_texts(int number, const VkPipelineExecutableInfoKHR *which) {
    PFN_vkGetPipelineExecutableInternalRepresentationsKHR get = NEXT(vkGetPipelineExecutableInternalRepresentationsKHR);
    uint32_t count = 0;
    get(the_device, which, &count, NULL);
    VkPipelineExecutableInternalRepresentationKHR *found = calloc(count + 1, sizeof *found);
    for (uint32_t i = 0; i < count; i++)
        found[i].sType = VK_STRUCTURE_TYPE_PIPELINE_EXECUTABLE_INTERNAL_REPRESENTATION_KHR;
    get(the_device, which, &count, found);  // the sizes
    for (uint32_t i = 0; i < count; i++) found[i].pData = calloc(1, found[i].dataSize + 1);
    get(the_device, which, &count, found);
    for (uint32_t i = 0; i < count; i++) {
        char name[64 + VK_MAX_DESCRIPTION_SIZE];
        snprintf(name, sizeof name, "%d.%s.txt", number, found[i].name);
        for (char *c = name; *c; c++)
            if (*c == ' ' || *c == '/') *c = '_';
        FILE *file = open_output(name, "w");
        if (file) {
            fputs(found[i].pData, file);
            fclose(file);
        }
        free(found[i].pData);
    }
    free(found);
}

static void describe(VkPipeline pipeline) {
    FILE *file = open_output("pipelines.jsonl", "a");
    VkPipelineInfoKHR info = {.sType = VK_STRUCTURE_TYPE_PIPELINE_INFO_KHR, .pipeline = pipeline};
    VkPipelineExecutableInfoKHR which = {.sType = VK_STRUCTURE_TYPE_PIPELINE_EXECUTABLE_INFO_KHR, .pipeline = pipeline};
    VkPipelineExecutablePropertiesKHR about[8] = {0};
    uint32_t count = 8;
    if (!file) return;
    for (uint32_t i = 0; i < count; i++) about[i].sType = VK_STRUCTURE_TYPE_PIPELINE_EXECUTABLE_PROPERTIES_KHR;
    NEXT(vkGetPipelineExecutablePropertiesKHR)(the_device, &info, &count, about);
    // Intel's compiler gives several widths of a kernel. The driver runs the last one, which is the widest.
    which.executableIndex = count - 1;
    fprintf(file, "{\"lanes\":%u,\"statistics\":{", about[count - 1].subgroupSize);
    put_statistics(file, &which);
    fputs("}}\n", file);
    fclose(file);
    write_texts(pipeline_count, &which);
    pipeline_count++;
}

static VKAPI_ATTR VkResult VKAPI_CALL create_pipelines(VkDevice device, VkPipelineCache cache, uint32_t count,
                                                       const VkComputePipelineCreateInfo *infos,
                                                       const VkAllocationCallbacks *allocator, VkPipeline *pipelines) {
    (void)cache;  // never from a cache
    for (uint32_t i = 0; i < count; i++) {
        VkComputePipelineCreateInfo info = infos[i];
        info.flags |= VK_PIPELINE_CREATE_CAPTURE_STATISTICS_BIT_KHR |
                      VK_PIPELINE_CREATE_CAPTURE_INTERNAL_REPRESENTATIONS_BIT_KHR;
        VkResult result = NEXT(vkCreateComputePipelines)(device, VK_NULL_HANDLE, 1, &info, allocator, &pipelines[i]);
        if (result < 0) return result;
        describe(pipelines[i]);
    }
    return VK_SUCCESS;
}

// -- null hardware: memory -----------------------------------------------------------------------------------------

static VKAPI_ATTR VkResult VKAPI_CALL allocate_memory(VkDevice device, const VkMemoryAllocateInfo *info,
                                                      const VkAllocationCallbacks *allocator, VkDeviceMemory *memory) {
    (void)device, (void)allocator;
    *memory = (VkDeviceMemory)calloc(1, info->allocationSize);
    return *memory ? VK_SUCCESS : VK_ERROR_OUT_OF_DEVICE_MEMORY;
}

static VKAPI_ATTR void VKAPI_CALL free_memory(VkDevice device, VkDeviceMemory memory, const VkAllocationCallbacks *allocator) {
    (void)device, (void)allocator;
    free((void *)memory);
}

static VKAPI_ATTR VkResult VKAPI_CALL map_memory(VkDevice device, VkDeviceMemory memory, VkDeviceSize offset,
                                                 VkDeviceSize nbytes, VkMemoryMapFlags flags, void **data) {
    (void)device, (void)nbytes, (void)flags;
    *data = (char *)memory + offset;
    return VK_SUCCESS;
}

static VKAPI_ATTR void VKAPI_CALL requirements(VkDevice device, VkBuffer buffer, VkMemoryRequirements *found) {
    NEXT(vkGetBufferMemoryRequirements)(device, buffer, found);
    found->memoryTypeBits = 3;
}

static VKAPI_ATTR void VKAPI_CALL requirements2(VkDevice device, const VkBufferMemoryRequirementsInfo2 *info,
                                                VkMemoryRequirements2 *found) {
    NEXT(vkGetBufferMemoryRequirements2)(device, info, found);
    found->memoryRequirements.memoryTypeBits = 3;
}

static void invent_memory(VkPhysicalDeviceMemoryProperties *found) {
    if (found->memoryTypeCount) return;
    const VkMemoryPropertyFlags host = VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT;
    *found = (VkPhysicalDeviceMemoryProperties){
        .memoryTypeCount = 2,
        .memoryTypes = {{VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT, 0}, {host, 1}},
        .memoryHeapCount = 2,
        .memoryHeaps = {{16ull << 30, VK_MEMORY_HEAP_DEVICE_LOCAL_BIT}, {16ull << 30, 0}},
    };
}

static VKAPI_ATTR void VKAPI_CALL memory_properties(VkPhysicalDevice physical, VkPhysicalDeviceMemoryProperties *found) {
    next_memory_properties(physical, found);
    invent_memory(found);
}

static VKAPI_ATTR void VKAPI_CALL memory_properties2(VkPhysicalDevice physical, VkPhysicalDeviceMemoryProperties2 *found) {
    next_memory_properties2(physical, found);
    if (found->memoryProperties.memoryTypeCount) return;
    invent_memory(&found->memoryProperties);
    VkPhysicalDeviceMemoryBudgetPropertiesEXT *budget =
        (void *)find_in(found->pNext, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_BUDGET_PROPERTIES_EXT);
    for (uint32_t i = 0; budget && i < 2; i++) {
        budget->heapBudget[i] = found->memoryProperties.memoryHeaps[i].size;
        budget->heapUsage[i] = 0;
    }
}

// -- null hardware: waiting and commands ---------------------------------------------------------------------------

static VKAPI_ATTR VkResult VKAPI_CALL create_counter(VkDevice device, const void *info,
                                                     const VkAllocationCallbacks *allocator, uint64_t *made) {
    (void)device, (void)allocator;
    const VkSemaphoreTypeCreateInfo *type = find_in(info, VK_STRUCTURE_TYPE_SEMAPHORE_TYPE_CREATE_INFO);
    uint64_t *counter = calloc(1, sizeof *counter);
    *counter = type ? type->initialValue : 0;
    *made = (uint64_t)(uintptr_t)counter;
    return VK_SUCCESS;
}

static VKAPI_ATTR void VKAPI_CALL destroy_counter(VkDevice device, uint64_t *counter, const VkAllocationCallbacks *allocator) {
    (void)device, (void)allocator;
    free(counter);
}

static VKAPI_ATTR VkResult VKAPI_CALL counter_value(VkDevice device, uint64_t *counter, uint64_t *value) {
    (void)device;
    *value = *counter;
    return VK_SUCCESS;
}

static VKAPI_ATTR VkResult VKAPI_CALL signal_semaphore(VkDevice device, const VkSemaphoreSignalInfo *info) {
    (void)device;
    *(uint64_t *)info->semaphore = info->value;
    return VK_SUCCESS;
}

static VKAPI_ATTR VkResult VKAPI_CALL submit(VkQueue queue, uint32_t count, const VkSubmitInfo *submits, VkFence fence) {
    (void)queue, (void)fence;
    for (uint32_t i = 0; i < count; i++) {  // it finishes at once
        const VkTimelineSemaphoreSubmitInfo *values =
            find_in(submits[i].pNext, VK_STRUCTURE_TYPE_TIMELINE_SEMAPHORE_SUBMIT_INFO);
        for (uint32_t k = 0; k < submits[i].signalSemaphoreCount; k++)
            if (values && k < values->signalSemaphoreValueCount)
                *(uint64_t *)submits[i].pSignalSemaphores[k] = values->pSignalSemaphoreValues[k];
    }
    return VK_SUCCESS;
}

static VKAPI_ATTR VkResult VKAPI_CALL allocate_commands(VkDevice device, const VkCommandBufferAllocateInfo *info,
                                                        VkCommandBuffer *made) {
    (void)device;
    for (uint32_t i = 0; i < info->commandBufferCount; i++) {
        VK_LOADER_DATA *data = calloc(1, sizeof *data);
        set_loader_magic_value(data);
        made[i] = (VkCommandBuffer)data;
    }
    return VK_SUCCESS;
}

static VKAPI_ATTR void VKAPI_CALL free_commands(VkDevice device, VkCommandPool pool, uint32_t count,
                                                const VkCommandBuffer *buffers) {
    (void)device, (void)pool;
    for (uint32_t i = 0; i < count; i++) free(buffers[i]);
}

static VKAPI_ATTR uint64_t VKAPI_CALL do_nothing(void) { return VK_SUCCESS; }

typedef struct {
    const char *name;
    void *function;
} Function;

static const Function null_functions[] = {
    {"vkAllocateMemory", allocate_memory},
    {"vkFreeMemory", free_memory},
    {"vkMapMemory", map_memory},
    {"vkUnmapMemory", do_nothing},
    {"vkFlushMappedMemoryRanges", do_nothing},
    {"vkInvalidateMappedMemoryRanges", do_nothing},
    {"vkBindBufferMemory", do_nothing},
    {"vkBindBufferMemory2", do_nothing},
    {"vkBindBufferMemory2KHR", do_nothing},
    {"vkGetBufferMemoryRequirements", requirements},
    {"vkGetBufferMemoryRequirements2", requirements2},
    {"vkGetBufferMemoryRequirements2KHR", requirements2},
    {"vkCreateSemaphore", create_counter},
    {"vkDestroySemaphore", destroy_counter},
    {"vkGetSemaphoreCounterValue", counter_value},
    {"vkGetSemaphoreCounterValueKHR", counter_value},
    {"vkWaitSemaphores", do_nothing},
    {"vkWaitSemaphoresKHR", do_nothing},
    {"vkSignalSemaphore", signal_semaphore},
    {"vkSignalSemaphoreKHR", signal_semaphore},
    {"vkCreateFence", create_counter},
    {"vkDestroyFence", destroy_counter},
    {"vkResetFences", do_nothing},
    {"vkGetFenceStatus", do_nothing},
    {"vkWaitForFences", do_nothing},
    {"vkQueueSubmit", submit},
    {"vkQueueWaitIdle", do_nothing},
    {"vkDeviceWaitIdle", do_nothing},
    {"vkAllocateCommandBuffers", allocate_commands},
    {"vkFreeCommandBuffers", free_commands},
    {"vkBeginCommandBuffer", do_nothing},
    {"vkEndCommandBuffer", do_nothing},
    {"vkResetCommandBuffer", do_nothing},
    {"vkResetCommandPool", do_nothing},
    {"vkUpdateDescriptorSets", do_nothing},
};

// -- instance and device -------------------------------------------------------------------------------------------

static VKAPI_ATTR VkResult VKAPI_CALL create_instance(const VkInstanceCreateInfo *info,
                                                      const VkAllocationCallbacks *allocator, VkInstance *instance) {
    VkLayerInstanceCreateInfo *link = (void *)info->pNext;
    while (link && (link->sType != VK_STRUCTURE_TYPE_LOADER_INSTANCE_CREATE_INFO || link->function != VK_LAYER_LINK_INFO))
        link = (void *)link->pNext;
    if (!link) return VK_ERROR_INITIALIZATION_FAILED;
    next_instance_proc = link->u.pLayerInfo->pfnNextGetInstanceProcAddr;
    link->u.pLayerInfo = link->u.pLayerInfo->pNext;
    VkResult result = ((PFN_vkCreateInstance)next_instance_proc(NULL, "vkCreateInstance"))(info, allocator, instance);
    if (result < 0) return result;
    the_instance = *instance;
    next_memory_properties = (void *)next_instance_proc(the_instance, "vkGetPhysicalDeviceMemoryProperties");
    next_memory_properties2 = (void *)next_instance_proc(the_instance, "vkGetPhysicalDeviceMemoryProperties2");
    return result;
}

static VKAPI_ATTR VkResult VKAPI_CALL create_device(VkPhysicalDevice physical, const VkDeviceCreateInfo *info,
                                                    const VkAllocationCallbacks *allocator, VkDevice *device) {
    VkLayerDeviceCreateInfo *link = (void *)info->pNext;
    while (link && (link->sType != VK_STRUCTURE_TYPE_LOADER_DEVICE_CREATE_INFO || link->function != VK_LAYER_LINK_INFO))
        link = (void *)link->pNext;
    if (!link) return VK_ERROR_INITIALIZATION_FAILED;
    PFN_vkGetInstanceProcAddr instance_proc = link->u.pLayerInfo->pfnNextGetInstanceProcAddr;
    next_device_proc = link->u.pLayerInfo->pfnNextGetDeviceProcAddr;
    link->u.pLayerInfo = link->u.pLayerInfo->pNext;

    VkPhysicalDeviceProperties about;
    ((PFN_vkGetPhysicalDeviceProperties)instance_proc(the_instance, "vkGetPhysicalDeviceProperties"))(physical, &about);
    is_null_hardware = strstr(about.deviceName, "Null hardware") != NULL;

    VkPhysicalDevicePipelineExecutablePropertiesFeaturesKHR wanted = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PIPELINE_EXECUTABLE_PROPERTIES_FEATURES_KHR,
        .pNext = (void *)info->pNext,
        .pipelineExecutableInfo = VK_TRUE};
    const char **names = calloc(info->enabledExtensionCount + 1, sizeof *names);
    memcpy(names, info->ppEnabledExtensionNames, info->enabledExtensionCount * sizeof *names);
    names[info->enabledExtensionCount] = VK_KHR_PIPELINE_EXECUTABLE_PROPERTIES_EXTENSION_NAME;
    VkDeviceCreateInfo with = *info;
    with.pNext = &wanted;
    with.enabledExtensionCount++;
    with.ppEnabledExtensionNames = names;
    VkResult result = ((PFN_vkCreateDevice)instance_proc(the_instance, "vkCreateDevice"))(physical, &with, allocator, device);
    free(names);
    if (result >= 0) the_device = *device;
    return result;
}

// -- the loader's interface ----------------------------------------------------------------------------------------

static VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL device_proc(VkDevice device, const char *name);
static VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL instance_proc(VkInstance instance, const char *name);

static const Function functions[] = {
    {"vkGetInstanceProcAddr", instance_proc},
    {"vkGetDeviceProcAddr", device_proc},
    {"vkCreateInstance", create_instance},
    {"vkCreateDevice", create_device},
    {"vkCreateComputePipelines", create_pipelines},
    {"vkGetPhysicalDeviceMemoryProperties", memory_properties},
    {"vkGetPhysicalDeviceMemoryProperties2", memory_properties2},
    {"vkGetPhysicalDeviceMemoryProperties2KHR", memory_properties2},
};

#define FIND(table, name) \
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) \
        if (!strcmp(table[i].name, name)) return (PFN_vkVoidFunction)table[i].function

static VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL device_proc(VkDevice device, const char *name) {
    FIND(functions, name);
    if (is_null_hardware) {
        FIND(null_functions, name);
        if (!strncmp(name, "vkCmd", 5)) return (PFN_vkVoidFunction)do_nothing;
    }
    return next_device_proc(device, name);
}

static VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL instance_proc(VkInstance instance, const char *name) {
    FIND(functions, name);
    return next_instance_proc ? next_instance_proc(instance, name) : NULL;
}

VKAPI_ATTR VkResult VKAPI_CALL vkNegotiateLoaderLayerInterfaceVersion(VkNegotiateLayerInterface *version) {
    if (version->loaderLayerInterfaceVersion > 2) version->loaderLayerInterfaceVersion = 2;
    version->pfnGetInstanceProcAddr = instance_proc;
    version->pfnGetDeviceProcAddr = device_proc;
    version->pfnGetPhysicalDeviceProcAddr = NULL;
    return VK_SUCCESS;
}
