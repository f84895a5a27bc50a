//! The tables of transformers 5.19 that tell which tokenizer class a type of model has.

/// Types of models that are given the generic class, which takes `tokenizer.json` as it is.
pub const GENERIC_TYPES: &str = "EvollaModel arctic aria bigbird_pegasus camembertv2-base canary chameleon chatlm cohere_asr deepseek_ocr \
     deepseek_ocr2 deepseek_v2 deepseek_v3 deepseek_v32 deepseek_v4 deepseek_vl deepseek_vl_hybrid \
     deepseek_vl_v2 ernie4_5 ernie4_5_moe flex_olmo fuyu glm glm4 glm4_moe glm4_moe_lite glm4v glm4v_moe \
     glm_image glmasr got_ocr2 gpt_bigcode granite granitemoe granitemoehybrid granitemoeshared h2ovl_chat \
     hyperclovax hyperclovax_vlm internlm2 jamba janus kimi_k25 kimi_linear kosmos-2 llava llava_next \
     mimo_v2_flash minicpm3 minicpmv minicpmv4_6 minicpmv4_7 minimax_m2 ministral ministral3 mistral mistral3 \
     mixtral modernbert modernbert-decoder molmo molmo2 nemotron nvfp4 nystromformer olmo2 olmo3 olmo_hybrid \
     opencua openvla paddleocr_vl pegasus_x persimmon phi3 phi3_v phimoe pix2struct pixtral smolvlm stablelm \
     step3_vl step3p5 umt5 vipllava voxtral voxtral_realtime xlm-roberta-xl";

/// Types of models whose class wins over the one that `tokenizer_config.json` names.
pub const OVERRULED_TYPES: &str =
    "hyperclovax_vision_v2 qwen2 qwen3_5 qwen3_5_moe qwen3_5_moe_text qwen4_exp";

/// Types of models for which the engine (vLLM 0.32) takes the generic class, whatever else is said.
pub const FORCED_TYPES: &str = "internlm2 step3_vl step3p7 unlimited-ocr unlimited_ocr";

/// Of the other types the class and the types.
pub const CLASSES: [(&str, &str); 93] = [
    ("AlbertTokenizer", "albert yoso"),
    ("BartTokenizer", "florence2"),
    ("BarthezTokenizer", "barthez"),
    ("BartphoTokenizer", "bartpho"),
    ("BertGenerationTokenizer", "bert-generation"),
    ("BertJapaneseTokenizer", "bert-japanese"),
    (
        "BertTokenizer",
        "align bark bert blip bros chinese_clip convbert distilbert electra ernie flava \
         git grounding-dino layoutlm megatron-bert mm-grounding-dino nezha nomic_bert \
         qdqbert realm retribert squeezebert tvp vilt visual_bert",
    ),
    ("BertweetTokenizer", "bertweet"),
    ("BigBirdTokenizer", "big_bird"),
    ("BioGptTokenizer", "biogpt"),
    ("BlenderbotSmallTokenizer", "blenderbot-small"),
    ("BlenderbotTokenizer", "blenderbot"),
    ("ByT5Tokenizer", "byt5"),
    (
        "CLIPTokenizer",
        "aimv2 clip clipseg groupvit omdet-turbo oneformer owlv2 owlvit sam3 sam3_video \
         xclip",
    ),
    ("CTRLTokenizer", "ctrl"),
    ("CamembertTokenizer", "camembert"),
    ("CanineTokenizer", "canine"),
    ("ClvpTokenizer", "clvp"),
    ("CodeLlamaTokenizer", "code_llama"),
    ("CohereTokenizer", "aya_vision cohere cohere2"),
    ("CpmAntTokenizer", "cpmant"),
    ("CpmTokenizer", "cpm"),
    ("DPRQuestionEncoderTokenizer", "dpr"),
    ("DebertaTokenizer", "deberta"),
    ("DebertaV2Tokenizer", "deberta-v2"),
    ("DiaTokenizer", "dia"),
    ("EsmTokenizer", "esm"),
    ("EsmcTokenizer", "esmc esmfold2"),
    ("FNetTokenizer", "fnet"),
    ("FSMTTokenizer", "fsmt"),
    ("FlaubertTokenizer", "flaubert"),
    ("FunnelTokenizer", "funnel"),
    (
        "GPT2Tokenizer",
        "blip-2 codegen dbrx emu3 gpt2 gpt_neo gptj hyperclovax_vision_v2 instructblip \
         instructblipvideo jais2 opt phi starcoder2",
    ),
    ("GPTNeoXJapaneseTokenizer", "gpt_neox_japanese"),
    ("GPTNeoXTokenizer", "falcon_mamba gpt_neox mamba mamba2 mpt olmo olmoe rwkv xlstm"),
    ("GPTSw3Tokenizer", "gpt-sw3"),
    (
        "GemmaTokenizer",
        "diffusion_gemma gemma gemma2 gemma3 gemma3_text gemma3n gemma3n_text \
         recurrent_gemma shieldgemma2 t5gemma zaya",
    ),
    ("HerbertTokenizer", "herbert"),
    ("LEDTokenizer", "led"),
    ("LasrTokenizer", "lasr_ctc lasr_encoder"),
    ("LayoutLMv2Tokenizer", "layoutlmv2"),
    ("LayoutLMv3Tokenizer", "layoutlmv3"),
    ("LayoutXLMTokenizer", "layoutxlm"),
    ("LlamaTokenizer", "idefics idefics2"),
    ("LukeTokenizer", "luke"),
    ("LxmertTokenizer", "lxmert"),
    ("M2M100Tokenizer", "m2m_100"),
    ("MBart50Tokenizer", "mbart50"),
    ("MBartTokenizer", "mbart"),
    ("MLukeTokenizer", "mluke"),
    ("MPNetTokenizer", "mpnet"),
    ("MarianTokenizer", "marian"),
    ("MarkupLMTokenizer", "markuplm"),
    ("MgpstrTokenizer", "mgp-str"),
    ("MobileBertTokenizer", "mobilebert"),
    ("MvpTokenizer", "mvp"),
    ("MyT5Tokenizer", "myt5"),
    ("NllbTokenizer", "nllb nllb-moe"),
    ("NougatTokenizer", "nougat pp_formulanet"),
    ("OpenAIGPTTokenizer", "openai-gpt"),
    ("PLBartTokenizer", "plbart"),
    (
        "ParakeetTokenizer",
        "granite_speech5_ctc nemotron3_5_asr nemotron_asr_streaming parakeet_ctc \
         parakeet_rnnt parakeet_tdt",
    ),
    ("PegasusTokenizer", "pegasus"),
    ("PerceiverTokenizer", "perceiver"),
    ("PhobertTokenizer", "phobert"),
    ("ProphetNetTokenizer", "prophetnet"),
    (
        "Qwen2Tokenizer",
        "audioflamingo3 colqwen2 cosmos3_omni fun_asr_nano hunyuan_vl internvl \
         lighton_ocr ovis2 qianfan_ocr qwen2 qwen2_5_omni qwen2_5_vl qwen2_audio \
         qwen2_moe qwen2_vl qwen3 qwen3_asr qwen3_moe qwen3_next qwen3_omni_moe qwen3_vl \
         qwen3_vl_moe vibevoice",
    ),
    ("Qwen3_5Tokenizer", "qwen3_5 qwen3_5_moe qwen3_5_moe_text qwen3_5_text qwen4_exp"),
    ("RagTokenizer", "rag"),
    ("ReformerTokenizer", "reformer"),
    ("RemBertTokenizer", "rembert"),
    ("RoCBertTokenizer", "roc_bert"),
    ("RoFormerTokenizer", "roformer"),
    (
        "RobertaTokenizer",
        "bart bridgetower clap data2vec-text ibert lilt longformer mega mra roberta \
         roberta-prelayernorm",
    ),
    ("SeamlessM4TTokenizer", "seamless_m4t seamless_m4t_v2"),
    ("Siglip2Tokenizer", "siglip2"),
    ("SiglipTokenizer", "siglip"),
    ("Speech2TextTokenizer", "speech_to_text"),
    ("SpeechT5Tokenizer", "speecht5"),
    ("SplinterTokenizer", "splinter"),
    ("T5Tokenizer", "mt5 musicgen musicgen_melody switch_transformers t5"),
    ("TapasTokenizer", "tapas"),
    ("Tipsv2Tokenizer", "tipsv2"),
    ("UdopTokenizer", "udop"),
    ("VideoPrismTokenizer", "videoprism"),
    ("VitsTokenizer", "vits"),
    (
        "Wav2Vec2CTCTokenizer",
        "data2vec-audio hubert unispeech unispeech-sat wav2vec2 wav2vec2-bert \
         wav2vec2-conformer",
    ),
    ("Wav2Vec2PhonemeCTCTokenizer", "wav2vec2_phoneme"),
    ("WhisperTokenizer", "whisper"),
    ("XGLMTokenizer", "xglm"),
    ("XLMRobertaTokenizer", "gte jina_embeddings_v3 metaclip_2 trocr xlm-roberta xmod"),
    ("XLMTokenizer", "xlm"),
    ("XLNetTokenizer", "xlnet"),
];

/// Classes that make a tokenizer of their own out of it, or do without it.
pub const OTHER_CLASSES: &str = "AlbertTokenizer BartTokenizer BarthezTokenizer BartphoTokenizer BertGenerationTokenizer \
     BertJapaneseTokenizer BertTokenizer BertweetTokenizer BigBirdTokenizer BioGptTokenizer \
     BlenderbotSmallTokenizer BlenderbotTokenizer ByT5Tokenizer CLIPTokenizer CTRLTokenizer \
     CamembertTokenizer CanineTokenizer ClvpTokenizer CodeGenTokenizer CodeLlamaTokenizer CpmAntTokenizer \
     CpmTokenizer DPRContextEncoderTokenizer DPRQuestionEncoderTokenizer DPRReaderTokenizer DebertaTokenizer \
     DebertaV2Tokenizer DiaTokenizer DistilBertTokenizer EsmTokenizer EsmcTokenizer FSMTTokenizer \
     FastSpeech2ConformerTokenizer FlaubertTokenizer FunnelTokenizer GPTNeoXJapaneseTokenizer GPTSw3Tokenizer \
     HerbertTokenizer LEDTokenizer LasrTokenizer LayoutLMv2Tokenizer LayoutLMv3Tokenizer LayoutXLMTokenizer \
     LukeTokenizer LxmertTokenizer M2M100Tokenizer MBart50Tokenizer MBartTokenizer MLukeTokenizer \
     MPNetTokenizer MarianTokenizer MarkupLMTokenizer MgpstrTokenizer MobileBertTokenizer MvpTokenizer \
     MyT5Tokenizer NllbTokenizer NougatTokenizer OpenAIGPTTokenizer PLBartTokenizer PegasusTokenizer \
     PerceiverTokenizer PhobertTokenizer ProphetNetTokenizer ReformerTokenizer RemBertTokenizer \
     RoCBertTokenizer RoFormerTokenizer RobertaTokenizer SeamlessM4TTokenizer Siglip2Tokenizer \
     SiglipTokenizer Speech2TextTokenizer SpeechT5Tokenizer SplinterTokenizer SqueezeBertTokenizer \
     T5Tokenizer TapasTokenizer Tipsv2Tokenizer UdopTokenizer VideoPrismTokenizer VitsTokenizer \
     Wav2Vec2CTCTokenizer Wav2Vec2PhonemeCTCTokenizer WhisperTokenizer XGLMTokenizer XLMRobertaTokenizer \
     XLMTokenizer XLNetTokenizer";

/// The type of models whose chats are written in OpenAI's Harmony format.
pub const HARMONY_TYPE: &str = "gpt_oss";

/// Architectures for which the engine has a tokenizer or a renderer of its own.
pub const OWN_CHATS: [&str; 9] = [
    "DeepseekV32ForCausalLM",
    "DeepseekV41ForCausalLM",
    "DeepseekV4ForCausalLM",
    "DeepseekV4ForConditionalGeneration",
    "GptOssForCausalLM",
    "InklingForCausalLM",
    "InklingForConditionalGeneration",
    "KimiK3ForConditionalGeneration",
    "MoonshotKimiaForCausalLM",
];
